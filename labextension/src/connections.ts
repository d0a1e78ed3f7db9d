/**
 * Every connection of this tab to a kernel or a terminal, brought back after the server was away.
 *
 * Lab gives up on a kernel's websocket after seven attempts, and at once when the server closes it in an orderly way; clones
 * (debugger, completer, widgets) have websockets of their own. The set of all of them is not public: it is read from the
 * kernel manager where it is there, next to what the widgets of the shell tell.
 */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { ISessionContext } from '@jupyterlab/apputils';
import type { Kernel, ServiceManager } from '@jupyterlab/services';
import type { ITerminalTracker } from '@jupyterlab/terminal';
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
  for (const context of sessionContexts(app.shell)) {
    const { session } = context;
    // A failed look at the kernel while the server was away may have made Lab think that it died, which it never unthinks.
    if (session?.kernel?.status === 'dead' && (await app.serviceManager.kernels.findById(session.kernel.id))) {
      coming.push(session.changeKernel({ id: session.kernel.id }));
    }
  }
  for (const kernel of kernelConnections(app)) {
    if (!kernel.isDisposed && kernel.status !== 'dead' && (cut || kernel.connectionStatus !== 'connected')) {
      coming.push(kernel.reconnect());
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
