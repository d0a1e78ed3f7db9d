/**
 * Every connection of this tab to a kernel or a terminal, brought back after the server was away.
 *
 * Lab gives up on a kernel's websocket after seven attempts, and at once when the server closes it in an orderly way; clones
 * (debugger, completer, widgets) have websockets of their own. The set of all of them is not public, and neither is a kernel's
 * status: both are used where they are there, and nothing breaks where they are not.
 */

import type { ILabShell, JupyterFrontEnd } from '@jupyterlab/application';
import type { ISessionContext } from '@jupyterlab/apputils';
import type { Kernel, ServiceManager } from '@jupyterlab/services';
import type { ITerminalTracker } from '@jupyterlab/terminal';
import type { ISignal } from '@lumino/signaling';
import type { Widget } from '@lumino/widgets';

const AREAS = ['main', 'left', 'right', 'down', 'header', 'top', 'bottom', 'menu'];

/** The session contexts of the shell's widgets: notebooks, consoles, editors attached to one. */
export function* sessionContexts(shell: JupyterFrontEnd.IShell): Iterable<ISessionContext> {
  const seen = new Set<ISessionContext>();
  for (const area of AREAS) {
    let widgets: Iterable<Widget>;
    try {
      widgets = shell.widgets(area);
    } catch {
      continue; // This shell has no such area.
    }
    for (const widget of widgets) {
      const holder = widget as { sessionContext?: ISessionContext; context?: { sessionContext?: ISessionContext } };
      const context = holder.sessionContext ?? holder.context?.sessionContext;
      if (context && !seen.has(context)) {
        seen.add(context);
        yield context;
      }
    }
  }
}

/** All kernel connections of this tab. */
export function kernelConnections(app: JupyterFrontEnd): Set<Kernel.IKernelConnection> {
  const manager = app.serviceManager.kernels as { _kernelConnections?: Iterable<Kernel.IKernelConnection> };
  const found = new Set<Kernel.IKernelConnection>(manager._kernelConnections ?? []);
  for (const context of sessionContexts(app.shell)) {
    if (context.session?.kernel) {
      found.add(context.session.kernel);
    }
  }
  return found;
}

/** Ask anew what runs on the server. What is gone there is told to its widgets by Lab itself. */
async function refreshRunning(services: ServiceManager.IManager): Promise<void> {
  await Promise.allSettled([
    services.kernels.refreshRunning(),
    services.sessions.refreshRunning(),
    services.terminals.isAvailable() ? services.terminals.refreshRunning() : Promise.resolve()
  ]);
}

/**
 * Say whether a kernel is busy. Lab shows "Unknown" after each reconnection until the next cell runs, since it does not count
 * the messages with which it looks at a kernel; the server's list of kernels has it.
 */
function tellStatus(kernels: Kernel.IManager, kernel: Kernel.IKernelConnection): void {
  const teller = kernel as { _updateStatus?: (status: string) => void };
  for (const model of kernels.running()) {
    if (model.id === kernel.id && model.execution_state && kernel.status === 'unknown' && !kernel.isDisposed) {
      teller._updateStatus?.(model.execution_state);
    }
  }
}

/**
 * Bring the kernels and terminals of this tab back; resolves when each is connected or has given up.
 *
 * `cut`: all of them, also those that look alive; else only those that do not.
 */
export async function reconnectAll(
  app: JupyterFrontEnd,
  terminals: ITerminalTracker | null,
  cut: boolean
): Promise<void> {
  await refreshRunning(app.serviceManager);
  const coming: Promise<unknown>[] = [];
  for (const kernel of kernelConnections(app)) {
    if (!kernel.isDisposed) {
      const back = cut || kernel.connectionStatus !== 'connected' ? kernel.reconnect() : Promise.resolve();
      coming.push(back.then(() => tellStatus(app.serviceManager.kernels, kernel)));
    }
  }
  terminals?.forEach(({ content }) => {
    if (!content.session.isDisposed && (cut || content.session.connectionStatus !== 'connected')) {
      // Refresh and not only reconnect: the server sends the screen again, and it is not to be there twice.
      coming.push(content.refresh());
    }
  });
  await Promise.allSettled(coming);
}

/** A thing with a websocket. */
interface IConnected {
  readonly connectionStatusChanged: ISignal<unknown, Kernel.ConnectionStatus>;
}

/**
 * Call `lost` when a websocket of a notebook, console or terminal breaks: the first sign of a pause that was asked for
 * elsewhere, or of a login that ran out. Lab's own polls of the server come seconds later.
 */
export function watchSockets(
  app: JupyterFrontEnd,
  labShell: ILabShell | null,
  terminals: ITerminalTracker | null,
  lost: () => void
): void {
  const watched = new WeakSet<object>();
  const watch = (connected: IConnected, isUp: boolean) => {
    if (watched.has(connected)) {
      return;
    }
    watched.add(connected);
    let up = isUp;
    connected.connectionStatusChanged.connect((_, status) => {
      if (up && status !== 'connected') {
        lost();
      }
      up = status === 'connected';
    });
  };
  const look = () => {
    for (const context of sessionContexts(app.shell)) {
      watch(context, context.session?.kernel?.connectionStatus === 'connected');
    }
  };
  labShell?.layoutModified.connect(look);
  app.serviceManager.sessions.runningChanged.connect(look);
  terminals?.widgetAdded.connect((_, { content }) =>
    watch(content.session, content.session.connectionStatus === 'connected')
  );
  void app.restored.then(look);
}
