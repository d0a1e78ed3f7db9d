/** What the browser remembers across reloads: receipts that were shown, and runs whose output is on disk. */

/** Runs remembered at most; a kernel's journal is far shorter. */
const BOUND = 400;

/** The part of the browser's storage that is used. It may be full or forbidden: then things are told twice. */
export type Store = Pick<Storage, 'getItem' | 'setItem'>;

function write(store: Store, key: string, value: string): void {
  try {
    store.setItem(key, value);
  } catch (error) {
    console.warn(`The browser did not store ${key}.`, error);
  }
}

function read(store: Store, key: string): string | null {
  try {
    return store.getItem(key);
  } catch {
    return null;
  }
}

function receiptKey(server: string): string {
  return `gke-workspaces:receipt:${server}`;
}

/** Whether the receipt of that pause of that server was shown to whom the store belongs (a tab, a browser). */
export function told(store: Store, server: string, pauseId: string): boolean {
  return read(store, receiptKey(server)) === pauseId;
}

/** Remember that it was shown. */
export function tell(store: Store, server: string, pauseId: string): void {
  write(store, receiptKey(server), pauseId);
}

/** Ids of runs whose whole output was saved with the notebook. */
export class Settled {
  constructor(
    private readonly store: Store,
    server: string
  ) {
    this._key = `gke-workspaces:settled:${server}`;
  }

  has(id: string): boolean {
    return this._load().includes(id);
  }

  add(ids: Iterable<string>): void {
    const known = this._load();
    const added = [...ids].filter(id => !known.includes(id));
    if (added.length) {
      write(this.store, this._key, JSON.stringify([...known, ...added].slice(-BOUND)));
    }
  }

  private _load(): string[] {
    try {
      const found: unknown = JSON.parse(read(this.store, this._key) ?? '[]');
      return Array.isArray(found) ? found.filter(id => typeof id === 'string') : [];
    } catch {
      return [];
    }
  }

  private readonly _key: string;
}
