/** The command: ask what a pause would mean, ask the person, save, pause. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { IDocumentManager } from '@jupyterlab/docmanager';

import { confirmPause, showSentences, showUnsaved } from './dialog';
import type { PauseExtension } from './ext';
import { saveDocuments } from './save';
import type { IPauseMonitor, IPreflight } from './tokens';
import type { Translate } from './words';

/** What the command needs. */
export interface IPauseParts {
  app: JupyterFrontEnd;
  documents: IDocumentManager;
  extension: PauseExtension;
  monitor: IPauseMonitor;
  trans: Translate;
  /** Write the layout now; its failure does not stop a pause. */
  saveLayout(): Promise<void>;
}

/** Words for what went wrong on the way to a pause. */
function words(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** The whole way from the button to an accepted pause. Tells the person about every way in which it ends early. */
export async function pauseServer(parts: IPauseParts): Promise<void> {
  const { app, documents, extension, monitor, trans } = parts;
  let facts: IPreflight;
  try {
    facts = await extension.preflight();
  } catch (error) {
    await showSentences(trans.__('This server cannot be paused now'), [words(error)], trans);
    return;
  }
  if (!(await confirmPause(facts, trans))) {
    return;
  }
  monitor.saving();
  const unsaved = await saveDocuments(app.shell, documents);
  if (unsaved.length) {
    monitor.aborted();
    await showUnsaved(unsaved, trans);
    return;
  }
  try {
    await parts.saveLayout();
  } catch (error) {
    console.warn('The layout of the last moment was not saved.', error);
  }
  try {
    monitor.accepted(await extension.pause());
  } catch (error) {
    monitor.aborted();
    await showSentences(
      trans.__('The server was not paused'),
      [words(error), trans.__('Everything goes on as if nothing had happened.')],
      trans
    );
  }
}
