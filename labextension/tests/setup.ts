/** What Lumino's widgets expect of a browser and jsdom lacks. */

globalThis.DragEvent ??= class extends MouseEvent {} as unknown as typeof DragEvent;
