/**
 * The labextension: what a person sees of pause and resume in JupyterLab.
 *
 * Four plugins, since Lab's own start needs the one for lost connections before it has documents and notebooks:
 * the monitor (state of the tab), lost connections, the command with its button, and bringing the tab back.
 */

import type { JupyterFrontEndPlugin } from '@jupyterlab/application';
import {
  ConnectionLost,
  IConnectionLost,
  ILabShell,
  ILabStatus,
  JupyterFrontEnd,
  JupyterLab
} from '@jupyterlab/application';
import { CommandToolbarButton, ICommandPalette, IWindowResolver, Notification } from '@jupyterlab/apputils';
import { IDocumentManager } from '@jupyterlab/docmanager';
import { IMainMenu } from '@jupyterlab/mainmenu';
import { INotebookTracker } from '@jupyterlab/notebook';
import { IStateDB } from '@jupyterlab/statedb';
import { ITerminalTracker } from '@jupyterlab/terminal';
import { ITranslator } from '@jupyterlab/translation';

import { reconnectAll, watchSockets } from './connections';
import { PauseExtension } from './ext';
import { askHub, handIn, pageOf, spawnUrl, webUrl } from './hub';
import { pauseIcon } from './icon';
import { Settled } from './memory';
import type { INotices } from './notices';
import { connectNotices, tellReceipt, tellUnproven } from './notices';
import { Overlay } from './overlay';
import { pauseServer } from './pause';
import { keepNotebooks } from './recover';
import { saveLayout } from './save';
import { PauseMonitor } from './status';
import { COMMAND_PAUSE, IPauseMonitor, TRANSLATION_DOMAIN } from './tokens';

const monitorPlugin: JupyterFrontEndPlugin<IPauseMonitor> = {
  id: '@gke-workspaces/jupyterlab-pause:monitor',
  description: "Knows what the tab's server does during a pause, and shows it.",
  autoStart: true,
  requires: [JupyterFrontEnd.IPaths, ITranslator],
  optional: [JupyterLab.IInfo, ILabStatus],
  provides: IPauseMonitor,
  activate: (
    app: JupyterFrontEnd,
    paths: JupyterFrontEnd.IPaths,
    translator: ITranslator,
    info: JupyterLab.IInfo | null,
    labStatus: ILabStatus | null
  ) => {
    const trans = translator.load(TRANSLATION_DOMAIN);
    const extension = new PauseExtension(app.serviceManager.serverSettings);
    const monitor = new PauseMonitor({
      status: () => extension.status(),
      probe: () => extension.probe(),
      askHub: address => askHub(address),
      handIn: cancel => handIn(cancel),
      navigate: address => leaveTo(address),
      here: window.location.href,
      page: document
    });
    const notices: INotices = {
      trans,
      spawnUrl: spawnUrl(paths.urls),
      server: paths.urls.base,
      store: window.sessionStorage,
      page: window,
      workspace: () => extension.workspace(),
      leave: followUrl => leaveTo(pageOf(followUrl))
    };
    const overlay = new Overlay(trans, app.shell.node, {
      cancel: () => monitor.cancel(),
      leave: leaveTo,
      unsaved: () => labStatus?.isDirty ?? false
    });
    monitor.viewChanged.connect((_, view) => {
      overlay.present(view);
      if (info) {
        // Lab's own polls of the server rest while there is nobody to answer them.
        info.isConnected = view.kind === 'quiet' || view.kind === 'returning' || view.kind === 'saving';
      }
    });
    connectNotices(monitor, notices);
    monitor.noticed.connect((_, { kind }) => {
      if (info && kind === 'expired') {
        info.isConnected = false;
      }
    });
    void app.restored
      .then(() => monitor.refresh())
      .then(status => Promise.all([tellReceipt(status, notices), tellUnproven(status, notices)]))
      .catch(error => console.warn('The server extension for pausing did not answer.', error));
    // A page that the browser kept while another one was shown knows nothing of the time between.
    window.addEventListener('pageshow', event => {
      if (event.persisted) {
        monitor.lost();
      }
    });
    return monitor;
  }
};

/** Go to a page of the Hub in this tab. Documents were saved; what running cells wrote since is in the server's journal. */
function leaveTo(address: string): void {
  const target = webUrl(address, window.location.href);
  if (target) {
    // The last listener: Lab's, which asks about unsaved documents, has had its say by then (capturing does not come before it here).
    window.addEventListener('beforeunload', event => (event.returnValue = ''), { once: true });
    window.location.assign(target.href);
  }
}

const connectionLostPlugin: JupyterFrontEndPlugin<IConnectionLost> = {
  id: '@gke-workspaces/jupyterlab-pause:connection-lost',
  description: 'Replaces the stock "Restart" dialog of JupyterHub: a paused server is not a stopped one.',
  autoStart: true,
  requires: [JupyterFrontEnd.IPaths, IPauseMonitor],
  provides: IConnectionLost,
  activate: (_: JupyterFrontEnd, paths: JupyterFrontEnd.IPaths, monitor: IPauseMonitor): IConnectionLost => {
    if (!paths.urls.hubPrefix) {
      return ConnectionLost;
    }
    return () => {
      monitor.lost();
      return Promise.resolve();
    };
  }
};

const commandPlugin: JupyterFrontEndPlugin<void> = {
  id: '@gke-workspaces/jupyterlab-pause:command',
  description: 'The command, the button and the menu entry that pause the server.',
  autoStart: true,
  requires: [IPauseMonitor, IDocumentManager, ITranslator],
  optional: [ICommandPalette, IMainMenu, IStateDB, IWindowResolver],
  activate: (
    app: JupyterFrontEnd,
    monitor: IPauseMonitor,
    documents: IDocumentManager,
    translator: ITranslator,
    palette: ICommandPalette | null,
    menu: IMainMenu | null,
    state: IStateDB | null,
    resolver: IWindowResolver | null
  ) => {
    const trans = translator.load(TRANSLATION_DOMAIN);
    const extension = new PauseExtension(app.serviceManager.serverSettings);
    const enabled = () => monitor.view.kind === 'quiet' && monitor.status?.available === true;
    const caption = () => {
      if (!monitor.status) {
        return trans.__('The server has not said yet whether it can be paused.');
      }
      if (!monitor.status.available) {
        return (
          monitor.status.message || trans.__('This server cannot be paused: its hub or its image does not know how.')
        );
      }
      return trans.__('Save this server with its kernels and give its machine back');
    };
    app.commands.addCommand(COMMAND_PAUSE, {
      label: trans.__('Pause server'),
      caption,
      icon: pauseIcon,
      isEnabled: enabled,
      describedBy: { args: { type: 'object', properties: {} } },
      execute: () =>
        pauseServer({
          app,
          documents,
          extension,
          monitor,
          trans,
          saveLayout: () => (state && resolver ? saveLayout(app, state, resolver.name) : Promise.resolve())
        })
    });
    const button = new CommandToolbarButton({
      commands: app.commands,
      id: COMMAND_PAUSE,
      label: trans.__('Pause')
    });
    button.id = 'jp-gkews-pause';
    button.addClass('jp-gkews-Button');
    app.shell.add(button, 'top', { rank: 1000 });
    const refresh = () => app.commands.notifyCommandChanged(COMMAND_PAUSE);
    monitor.statusChanged.connect(refresh);
    monitor.viewChanged.connect(refresh);
    palette?.addItem({ command: COMMAND_PAUSE, category: trans.__('Hub') });
    menu?.fileMenu.addGroup([{ command: COMMAND_PAUSE }], 95);
    // No autosave while nobody can take the file: each would end in an error dialog.
    let autosave: boolean | null = null;
    monitor.viewChanged.connect((_, view) => {
      const away = view.kind !== 'quiet' && view.kind !== 'saving';
      if (away && autosave === null) {
        autosave = documents.autosave;
        documents.autosave = false;
      } else if (!away && autosave !== null) {
        documents.autosave = autosave;
        autosave = null;
      }
    });
  }
};

const recoverPlugin: JupyterFrontEndPlugin<void> = {
  id: '@gke-workspaces/jupyterlab-pause:recover',
  description: 'Brings kernels, terminals and the output of running cells back after a pause.',
  autoStart: true,
  requires: [IPauseMonitor, JupyterFrontEnd.IPaths, ITranslator],
  optional: [INotebookTracker, ITerminalTracker, ILabShell],
  activate: (
    app: JupyterFrontEnd,
    monitor: IPauseMonitor,
    paths: JupyterFrontEnd.IPaths,
    translator: ITranslator,
    notebooks: INotebookTracker | null,
    terminals: ITerminalTracker | null,
    labShell: ILabShell | null
  ) => {
    const trans = translator.load(TRANSLATION_DOMAIN);
    const extension = new PauseExtension(app.serviceManager.serverSettings);
    monitor.returned.connect((_, { cut, waitFor }) => waitFor(reconnectAll(app, terminals, cut)));
    if (paths.urls.hubPrefix) {
      watchSockets(app, labShell, terminals, () => monitor.lost());
    }
    if (notebooks) {
      const settled = new Settled(window.localStorage, paths.urls.base);
      keepNotebooks(
        notebooks,
        kernelId => extension.journal(kernelId),
        settled,
        path => {
          Notification.warning(
            trans.__('%1: more output came while you were away than is kept; its end is missing.', path),
            { autoClose: false }
          );
        }
      );
    }
  }
};

export * from './tokens';
export default [monitorPlugin, connectionLostPlugin, commandPlugin, recoverPlugin];
