import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { IDocumentManager } from '@jupyterlab/docmanager';

import { saveDocuments } from '../src/save';

interface IDocument {
  path: string;
  model: { dirty: boolean };
  save: jest.Mock;
}

function document_(path: string, dirty: boolean, save: () => Promise<void> = () => Promise.resolve()): IDocument {
  return { path, model: { dirty }, save: jest.fn(save) };
}

/** A shell with the documents in its main area; one that has two views is there twice. */
function shown(...documents: IDocument[]): [JupyterFrontEnd.IShell, IDocumentManager] {
  const shell = { widgets: (area: string) => (area === 'main' ? documents : []) };
  const manager = { contextForWidget: (widget: unknown) => widget };
  return [shell as unknown as JupyterFrontEnd.IShell, manager as unknown as IDocumentManager];
}

test('every edited document is saved once, and no other', async () => {
  const edited = document_('a.ipynb', true);
  const clean = document_('b.py', false);
  expect(await saveDocuments(...shown(edited, clean, edited))).toEqual([]);
  expect(edited.save).toHaveBeenCalledTimes(1);
  expect(clean.save).not.toHaveBeenCalled();
});

test('what could not be saved is named with its reason, and the others are saved all the same', async () => {
  const full = document_('a.ipynb', true, () => Promise.reject(new Error('No space left on device')));
  const other = document_('b.ipynb', true);
  expect(await saveDocuments(...shown(full, other))).toEqual([{ path: 'a.ipynb', why: 'No space left on device' }]);
  expect(other.save).toHaveBeenCalledTimes(1);
});
