// Keeps a page true without a refresh: quick while something is under way, slow when nothing changes, silent while nobody looks.

const QUICK = { first: 400, most: 2000 };
const CALM = { first: 3000, most: 15000 };
const TROUBLE = { first: 1000, most: 30000 };

/**
 * Poll `ask` and hand each answer to `tell`; `trouble` gets what went wrong and answers false to give up.
 * `hurry(answer)` says whether something is under way, `mark(answer)` is a string that changes with the answer.
 */
export function follow({ ask, tell, trouble, hurry, mark }) {
  let timer = null;
  let running = false;
  let again = false;
  let ended = false;
  let last = null;
  let wait = 0;
  let failed = 0;

  async function turn() {
    timer = null;
    if (running) {
      again = true;
      return;
    }
    running = true;
    again = false;
    try {
      const answer = await ask();
      failed = 0;
      const pace = hurry(answer) ? QUICK : CALM;
      const now = mark(answer);
      wait = now === last ? Math.min(Math.max(wait * 1.5, pace.first), pace.most) : pace.first;
      last = now;
      tell(answer);
    } catch (error) {
      if (error.status === undefined) {
        throw error;
      }
      failed += 1;
      wait = Math.min(TROUBLE.first * 2 ** (failed - 1), TROUBLE.most) * (0.75 + Math.random() / 2);
      ended = trouble(error, failed) === false;
    } finally {
      running = false;
    }
    plan(again ? 0 : wait);
  }

  function plan(delay) {
    clearTimeout(timer);
    timer = null;
    if (!ended && document.visibilityState === 'visible') {
      timer = setTimeout(turn, delay);
    }
  }

  /** Look at once; also what a press of a button does. */
  function kick() {
    wait = 0;
    last = null;
    plan(0);
  }

  document.addEventListener('visibilitychange', () => (document.visibilityState === 'visible' ? kick() : plan(0)));
  window.addEventListener('pageshow', event => event.persisted && kick());
  window.addEventListener('online', kick);

  return { kick, plan, seen: answer => (last = mark(answer)) };
}
