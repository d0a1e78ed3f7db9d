/** Telling people: toasts for what passes, dialogs for what needs them. */

import { Dialog, Notification, showDialog } from '@jupyterlab/apputils';

import { showReceipt, showSentences } from './dialog';
import { tell, told } from './memory';
import type { Store } from './memory';
import type { IFollow, IPauseMonitor, IReason, IReceipt, IReturn, IStatus, Notice } from './tokens';
import type { Translate } from './words';
import { receiptText } from './words';

/** What the notices need besides the words. */
export interface INotices {
  trans: Translate;
  /** The address at which the Hub starts this server. */
  spawnUrl: string;
  /** The server's path, which names it in the browser's memory. */
  server: string;
  store: Store;
  page: Window;
  /** The workspace as the Hub sees it, with the receipt of the last resume. */
  workspace(): Promise<Partial<IFollow>>;
  /** Go to the server's page. */
  leave(followUrl: string): void;
}

/** Show the monitor's notices and receipts. */
export function connectNotices(monitor: IPauseMonitor, given: INotices): void {
  const { trans } = given;
  let unreachable = '';
  let asking = false;

  const ask = async (title: string, body: string, go: string, act: () => void) => {
    if (asking) {
      return;
    }
    asking = true;
    try {
      const result = await showDialog({
        title,
        body,
        buttons: [Dialog.cancelButton({ label: trans.__('Dismiss') }), Dialog.okButton({ label: go })]
      });
      if (result.button.accept) {
        act();
      }
    } finally {
      asking = false;
    }
  };

  monitor.noticed.connect((_, notice: Notice) => {
    switch (notice.kind) {
      case 'expired':
        // Lab itself takes the refusals for dead kernels; one notice that is true stands for all of those.
        Dialog.flush();
        void ask(
          trans.__('Your login has run out'),
          trans.__('Reload this page to log in again. Your kernels go on meanwhile.'),
          trans.__('Reload'),
          () => given.page.location.reload()
        );
        break;
      case 'stopped':
        void ask(
          trans.__('Server unavailable or unreachable'),
          trans.__('Your server at %1 is not running.\nWould you like to restart it?', given.server),
          trans.__('Restart'),
          () => given.page.open(given.spawnUrl, '_blank', 'noopener')
        );
        break;
      case 'unreachable':
        unreachable = Notification.warning(trans.__('The connection to your server is lost. Trying again…'), {
          autoClose: false
        });
        break;
      case 'reachable':
        Notification.dismiss(unreachable);
        break;
      case 'failed':
        tellFailure(notice.reason, trans);
        break;
    }
  });

  monitor.returned.connect((_, { status, follow, fresh }: IReturn) => {
    if (fresh) {
      const receipt = follow?.receipt?.resumed === false ? follow.receipt : null;
      void showReceipt(receiptText(receipt, true, trans), trans);
    } else {
      void tellReceipt(status, given);
    }
  });
}

/** The pause did not succeed and the server goes on. A toast holds 140 characters: the rest is behind its button. */
function tellFailure(reason: IReason | null, trans: Translate): void {
  const title = trans.__('The server was not paused');
  const why = reason?.sentence ?? trans.__('The pause was called off.');
  const all = [why, reason?.advice ?? '', trans.__('Everything goes on as if nothing had happened.')];
  Notification.warning(`${title}: ${why}`, {
    autoClose: false,
    actions: [{ label: trans.__('Details'), callback: () => void showSentences(title, all, trans) }]
  });
}

/** Questions for a receipt, and milliseconds between them: the Hub writes it a moment after the server is back. */
const TRIES = 6;
const BETWEEN = 1500;

/** Milliseconds after a restore in which a tab that is new tells of it; later ones open on a server that simply runs. */
const NEWS = 300_000;

/** Tell the receipt of the restore that the server speaks of, once for each pause in each tab. Never rejects. */
export async function tellReceipt(status: IStatus, given: INotices): Promise<void> {
  const { trans } = given;
  const pauseId = status.restored?.pause_id;
  const age = Date.now() - (status.restored?.at ?? 0) * 1000;
  if (!pauseId || age > NEWS || told(given.store, given.server, pauseId)) {
    return;
  }
  let receipt: IReceipt | null = null;
  for (let i = 0; !receipt && i < TRIES; i++) {
    if (i > 0) {
      await new Promise(resolve => setTimeout(resolve, BETWEEN));
    }
    receipt = (await given.workspace().catch(() => null))?.receipt ?? null;
  }
  tell(given.store, given.server, pauseId);
  const text = receiptText(receipt, false, trans);
  if (!text.good) {
    await showReceipt(text, trans);
    return;
  }
  Notification.success(text.line, {
    autoClose: text.lost.length ? false : 15000,
    actions: [{ label: trans.__('Details'), callback: () => void showReceipt(text, trans) }]
  });
}

/**
 * Tell a tab that opens on a server which is not the one that was paused. Nothing else in Lab says so, and the choice
 * (try the resume again, or keep this server) is on the server's page. Never rejects.
 */
export async function tellUnproven(status: IStatus, given: INotices): Promise<void> {
  const { trans } = given;
  const followUrl = status.follow_url;
  if (!status.available || !followUrl || (await given.workspace().catch(() => null))?.phase !== 'unproven') {
    return;
  }
  Notification.warning(
    trans.__('This server is not the one that was paused. Its snapshot is kept: resume again, or keep this server.'),
    {
      autoClose: false,
      actions: [{ label: trans.__('Choose'), displayType: 'accent', callback: () => given.leave(followUrl) }]
    }
  );
}
