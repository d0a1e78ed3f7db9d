/** Before a pause: everything that this tab has edited goes to disk, and so does its layout. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { IDocumentManager } from '@jupyterlab/docmanager';
import type { DocumentRegistry } from '@jupyterlab/docregistry';
import type { IStateDB } from '@jupyterlab/statedb';

/** A document that could not be saved. */
export interface IUnsaved {
  path: string;
  why: string;
}

const AREAS = ['main', 'left', 'right', 'down'] as const;

/** The contexts of all documents that are open in this tab, each once. */
function contexts(shell: JupyterFrontEnd.IShell, documents: IDocumentManager): Set<DocumentRegistry.Context> {
  const found = new Set<DocumentRegistry.Context>();
  for (const area of AREAS) {
    for (const widget of shell.widgets(area)) {
      const context = documents.contextForWidget(widget);
      if (context) {
        found.add(context);
      }
    }
  }
  return found;
}

/** Save every document with unsaved edits; answers those that could not be saved. */
export async function saveDocuments(shell: JupyterFrontEnd.IShell, documents: IDocumentManager): Promise<IUnsaved[]> {
  const unsaved: IUnsaved[] = [];
  for (const context of contexts(shell, documents)) {
    if (!context.model.dirty) {
      continue;
    }
    try {
      await context.save();
    } catch (error) {
      unsaved.push({ path: context.path, why: error instanceof Error ? error.message : String(error) });
    }
  }
  return unsaved;
}

/**
 * Write the workspace (which documents are open, and where) now; Lab does it a moment after each change.
 *
 * Rejects when the server refuses it; nothing but the layout of the last moment would be lost.
 */
export async function saveLayout(app: JupyterFrontEnd, state: IStateDB, workspace: string): Promise<void> {
  const data = await state.toJSON();
  await app.serviceManager.workspaces.save(workspace, { data, metadata: { id: workspace } });
}
