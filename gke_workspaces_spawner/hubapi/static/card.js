// What one server looks like, whole (its own page) or short (a line of a list). Pure: a view and the state of the screen in, nodes out.

import { h } from "./dom.js";
import { badge, button, bytes, confirmation, duration, exactly, offered, open, plural, steps, underWay, when } from "./words.js";

/** How the server is called on a page of `me`. */
export function nameOf(view, me) {
  const own = view.user === me;
  if (view.server) return own ? view.server : `${view.server} of ${view.user}`;
  return own ? "My server" : `Default server of ${view.user}`;
}

export function badgeOf(view) {
  const { label, look, icon, busy } = badge(view);
  return h(
    "span",
    { key: "badge", class: `badge text-bg-${look} gke-ws-badge`, "data-phase": view.phase },
    busy
      ? h("span", { class: "spinner-border gke-ws-spin", "aria-hidden": "true" })
      : h("i", { class: `fa fa-fw ${icon}`, "aria-hidden": "true" }),
    " ",
    label,
  );
}

function time(seconds, now) {
  return h("time", { datetime: new Date(seconds * 1000).toISOString(), title: exactly(seconds) }, when(seconds, now));
}

function sinceLine(view, now) {
  if (!view.since) return null;
  if (view.phase === "paused") return ["Paused since ", time(view.since, now)];
  if (view.phase === "unproven") return ["Since ", time(view.since, now)];
  if (underWay(view) && open(view)) return [`For ${duration(Math.max(0, now / 1000 - view.since))}`];
  return null;
}

function progressBar(view, label) {
  const known = typeof view.progress === "number";
  const percent = known ? Math.round(Math.min(1, Math.max(0, view.progress)) * 100) : null;
  return h(
    "div",
    {
      key: "progress",
      class: "progress gke-ws-progress",
      role: "progressbar",
      "aria-label": label,
      "aria-valuemin": "0",
      "aria-valuemax": "100",
      "aria-valuenow": percent,
    },
    h("div", {
      class: `progress-bar${known ? "" : " gke-ws-unknown"}`,
      style: known ? { width: `${percent}%` } : {},
    }),
  );
}

function stepper(view) {
  const all = steps(view);
  const at = all.findIndex((step) => step.phase === view.phase);
  return h(
    "ol",
    { key: "steps", class: "gke-ws-steps", "aria-label": "Steps" },
    all.map((step, index) =>
      h(
        "li",
        { key: step.phase, class: index < at ? "gke-ws-done" : index === at ? "gke-ws-now" : null, "aria-current": index === at ? "step" : null },
        index < at && h("i", { class: "fa fa-check", "aria-hidden": "true" }),
        index < at && h("span", { class: "visually-hidden" }, "Done: "),
        step.label,
      ),
    ),
  );
}

/** The buttons, or while one asks to be confirmed, its question. */
export function buttons(view, ui, act, { small = false, without = [] } = {}) {
  const asked = ui.confirm && view.actions.includes(ui.confirm) ? confirmation(ui.confirm, view) : null;
  const size = small ? "btn-sm" : "";
  if (asked) {
    return h(
      "div",
      { key: "confirm", class: "gke-ws-confirm alert alert-light border mb-0", role: "group", "aria-label": "Please confirm" },
      h("p", { class: "mb-2", tabindex: "-1", "data-gke-focus": "confirm" }, asked.question),
      h(
        "div",
        { class: "gke-ws-buttons" },
        h("button", { key: "yes", type: "button", class: `btn btn-${asked.look} ${size}`, "data-action": ui.confirm, onclick: () => act(ui.confirm, true) }, asked.yes),
        h("button", { key: "no", type: "button", class: `btn btn-outline-secondary ${size}`, "data-action": "no", onclick: () => act(null) }, asked.no),
      ),
    );
  }
  const shown = offered(view).filter((action) => !without.includes(action));
  return h(
    "div",
    { key: "buttons", class: "gke-ws-buttons" },
    shown.map((action) => {
      const { label, look } = button(action, view);
      const busy = ui.busy === action;
      return h(
        "button",
        {
          key: action,
          type: "button",
          class: `btn btn-${look} ${size}${ui.busy ? " gke-ws-off" : ""}`,
          "data-action": action,
          // not "disabled": that would throw away the focus of the one who pressed it
          "aria-disabled": ui.busy ? "true" : null,
          onclick: () => ui.busy || act(action),
        },
        busy && h("span", { class: "spinner-border gke-ws-spin me-1", "aria-hidden": "true" }),
        label,
      );
    }),
  );
}

/** What went wrong: with a press of a button, with following, or with the last pause or resume. */
export function troubles(view, ui) {
  const reason = view?.reason;
  return h(
    "div",
    { key: "troubles", "aria-live": "polite", class: "gke-ws-troubles" },
    reason?.sentence &&
      h(
        "div",
        { key: "reason", class: `alert alert-${view.phase === "unproven" ? "danger" : "warning"}` },
        h("strong", {}, reason.sentence),
        reason.advice && [" ", reason.advice],
        view.detail && h("details", { key: "detail" }, h("summary", {}, "Details"), h("pre", { class: "mb-0" }, view.detail)),
      ),
    reason && !reason.sentence && h("div", { key: "code", class: "alert alert-warning" }, "Last outcome: ", h("code", {}, reason.code)),
    ui.error &&
      h(
        "div",
        { key: "error", class: "alert alert-danger" },
        ui.error.message,
        ui.error.advice && [" ", ui.error.advice],
        ui.error.reason && [" ", h("small", { class: "text-nowrap" }, "(", h("code", {}, ui.error.reason), ")")],
      ),
    ui.login && h("div", { key: "login", class: "alert alert-warning" }, "You are logged out. ", h("a", { href: ui.login, class: "alert-link" }, "Log in again")),
    ui.unreachable && h("div", { key: "unreachable", class: "alert alert-secondary" }, "The Hub cannot be reached at the moment; what you see may be old. This page tries again by itself."),
  );
}

function fact(key, label, ...content) {
  return h("div", { key, class: "gke-ws-fact" }, h("dt", {}, label), h("dd", {}, content));
}

function kernelList(kernels) {
  return h(
    "ul",
    { class: "list-unstyled mb-0" },
    kernels.map(named).map((kernel, index) =>
      h(
        "li",
        { key: index },
        h("bdi", { class: "text-break" }, kernel.path || kernel.name || "kernel"),
        h("span", { class: "text-body-secondary" }, kernel.path && kernel.name ? ` · ${kernel.name}` : null, kernel.state ? ` · ${kernel.state}` : null),
      ),
    ),
  );
}

/** While these last, the clocks of the pause are not all set. */
const PAUSE_STEPS = new Set(["preparing", "checkpointing", "saved", "stopping"]);

/** A kernel, notebook or terminal as the extension named it: a string, or an object with a path or a name. */
function named(item) {
  return typeof item === "string" ? { name: item } : (item ?? {});
}

function listOf(value) {
  return Array.isArray(value) ? value : [];
}

function countOf(value) {
  return Array.isArray(value) ? value.length : Number(value) || 0;
}

function facts(view, now) {
  const { snapshot, holds } = view;
  const clocks = view.pause?.clocks ?? {};
  const all = [];
  if (view.phase === "paused" && view.since) all.push(fact("since", "Paused since", time(view.since, now)));
  if (snapshot?.bytes) all.push(fact("size", "Size", bytes(snapshot.bytes)));
  if (clocks.pause_asked && clocks.freed && !PAUSE_STEPS.has(view.phase)) all.push(fact("took", "Pausing took", duration(clocks.freed - clocks.pause_asked)));
  if (snapshot) {
    all.push(
      fact("kept", "Kept until", snapshot.expires ? [time(snapshot.expires, now), ` (${duration(Math.max(0, snapshot.expires - now / 1000))} left)`] : "you discard it"),
    );
  }
  if (holds) {
    const kernels = listOf(holds.kernels);
    const terminals = countOf(holds.terminals);
    all.push(
      fact(
        "holds",
        view.phase === "unproven" ? "In the snapshot" : "Comes back",
        kernels.length ? kernelList(kernels) : null,
        terminals ? h("div", { key: "terminals" }, plural(terminals, "terminal")) : null,
        !kernels.length && !terminals ? "The server itself; no kernel and no terminal is open." : null,
      ),
    );
    const lost = [...listOf(holds.not_returning), ...(countOf(holds.connections) ? [plural(countOf(holds.connections), "open network connection")] : [])];
    if (lost.length) {
      all.push(
        fact(
          "lost",
          "Does not come back",
          h(
            "ul",
            { class: "list-unstyled mb-0" },
            lost.map((item, index) => h("li", { key: index, class: "text-break" }, lineOf(item))),
          ),
        ),
      );
    }
  }
  return all.length ? h("dl", { key: "facts", class: "gke-ws-facts card card-body" }, all) : null;
}

/** A line of a list from the extension: text, or an object that says what and why. */
function lineOf(item) {
  const { path, what, name, why, reason: because } = named(item);
  const cause = why ?? because;
  return [h("bdi", {}, String(path ?? what ?? name ?? "")), cause ? `: ${String(cause)}` : null];
}

function receiptList(key, title, lines) {
  if (!lines.length) return null;
  return h("div", { key }, h("h3", { class: "h6" }, title), h("ul", {}, lines.map((content, index) => h("li", { key: index, class: "text-break" }, content))));
}

function receipt(view) {
  const paper = view.receipt;
  if (!paper || view.phase !== "running") return null;
  const kernels = listOf(paper.kernels);
  const terminals = countOf(paper.before?.terminals);
  const measures = [
    typeof paper.seconds?.resume === "number" ? duration(paper.seconds.resume) : null,
    typeof paper.bytes === "number" && paper.bytes ? bytes(paper.bytes) : null,
    typeof paper.seconds?.paused === "number" ? `after a pause of ${duration(paper.seconds.paused)}` : null,
  ].filter(Boolean);
  return h(
    "section",
    { key: "receipt", class: "card", "aria-labelledby": "gke-ws-receipt" },
    h("h2", { class: "card-header h6 mb-0", id: "gke-ws-receipt" }, "Last resume"),
    h(
      "div",
      { class: "card-body gke-ws-receipt" },
      h("p", { key: "sentence" }, paper.resumed ? "The same processes are back" : "Not proved to be the same processes", measures.length ? ` (${measures.join(", ")}).` : "."),
      receiptList("back", "Came back", [...kernels.map((kernel) => ["Kernel ", h("bdi", {}, kernel.name || kernel.id)]), ...(terminals ? [plural(terminals, "terminal")] : [])]),
      receiptList("missing", "Did not come back", [...listOf(paper.kernels_missing).map((kernel) => ["Kernel ", h("bdi", {}, kernel.name || kernel.id)]), ...listOf(paper.before?.not_returning).map(lineOf)]),
      receiptList("notes", "To know", listOf(paper.sentences)),
    ),
  );
}

const STATES = { current: "of the last pause", superseded: "superseded by a fresh start", unproven: "not proven", pinned: "held" };

/** Snapshots beside the one that Resume brings back; while no pause is open each can be discarded by itself. */
function shelf(view, ui, act, now) {
  const own = view.phase === "running";
  const others = listOf(view.snapshots).filter((snapshot) => own || snapshot.id !== view.snapshot?.id);
  if (!others.length) return null;
  return h(
    "section",
    { key: "shelf", "aria-labelledby": "gke-ws-shelf" },
    h("h2", { class: "h6", id: "gke-ws-shelf" }, own ? "Kept snapshots" : "Other snapshots"),
    h(
      "ul",
      { class: "list-group" },
      others.map((snapshot) =>
        h(
          "li",
          { key: snapshot.id, class: "list-group-item gke-ws-row" },
          h(
            "div",
            { key: "what" },
            time(snapshot.created, now),
            ` · ${bytes(snapshot.bytes)}`,
            h("div", { class: "text-body-secondary small" }, STATES[snapshot.state] ?? snapshot.state, snapshot.expires ? [" · kept until ", time(snapshot.expires, now)] : null),
          ),
          own && snapshot.pause_id && keptButtons(snapshot, ui, act),
        ),
      ),
    ),
  );
}

function keptButtons(snapshot, ui, act) {
  const press = (label, look, action, confirmed) =>
    h("button", { key: label, type: "button", class: `btn btn-sm btn-${look}${ui.busy ? " gke-ws-off" : ""}`, "data-action": action, onclick: () => ui.busy || act(action, confirmed, snapshot.pause_id) }, label);
  const asked = ui.confirmKept === snapshot.pause_id;
  return h(
    "div",
    { key: "buttons", class: "gke-ws-buttons" },
    asked
      ? [h("span", { key: "question", tabindex: "-1", "data-gke-focus": "confirm" }, "Discard for good?"), press("Discard", "danger", "kept", true), press("Keep it", "outline-secondary", null, false)]
      : press("Discard", "outline-danger", "kept", false),
  );
}

/** The whole of one server. `heading` is the level of its title. */
export function whole(view, ui, act, { me, now, heading = "h1", files = null, without = [] }) {
  const since = sinceLine(view, now);
  const walking = steps(view).length > 0;
  const title = nameOf(view, me);
  // the reason stands below with its advice: not twice
  const sentence = (view.sentence ?? "").replace(view.reason?.sentence ?? "\0", "").trim();
  return [
    h(
      "div",
      { key: "head", class: "gke-ws-head" },
      h(heading, { key: "title", tabindex: "-1", "data-gke-focus": "title", class: "mb-0 text-break" }, h("bdi", {}, title)),
      badgeOf(view),
    ),
    h(
      "div",
      { key: "said", role: "status" },
      sentence ? h("p", { key: "sentence", class: "fs-5 mb-0" }, sentence) : null,
    ),
    walking ? h("div", { key: "way" }, stepper(view), progressBar(view, badge(view).label), h("p", { class: "text-body-secondary small mt-2" }, since)) : null,
    troubles(view, ui),
    h(
      "div",
      { key: "actions", class: "gke-ws-actions" },
      buttons(view, ui, act, { without }),
      files && !ui.confirm ? h("a", { key: "files", class: "btn btn-link", href: files }, h("i", { class: "fa fa-folder-open me-1", "aria-hidden": "true" }), "Files") : null,
    ),
    view.phase === "running" ? null : facts(view, now),
    receipt(view),
    shelf(view, ui, act, now),
  ];
}

/** One server in a list. */
export function line(view, ui, act, { me, now, page }) {
  const meta = [];
  const since = sinceLine(view, now);
  if (since) meta.push(since);
  if (view.snapshot?.bytes && open(view)) meta.push([bytes(view.snapshot.bytes)]);
  if (view.snapshot?.expires && view.phase === "paused") meta.push(["kept until ", time(view.snapshot.expires, now)]);
  return h(
    "li",
    { key: `${view.user}/${view.server}`, class: "list-group-item gke-ws-line", "data-server": view.server, "data-user": view.user },
    h(
      "div",
      { key: "row", class: "gke-ws-row" },
      h(
        "div",
        { key: "what", class: "gke-ws-what" },
        h(
          "div",
          { class: "gke-ws-head" },
          h("a", { key: "name", class: "gke-ws-name text-break", href: page, "data-gke-focus": "title" }, h("bdi", {}, nameOf(view, me))),
          badgeOf(view),
        ),
        meta.length ? h("div", { key: "meta", class: "text-body-secondary small" }, meta.flatMap((part, index) => (index ? [" · ", ...part] : part))) : null,
      ),
      ui.confirm ? null : buttons(view, ui, act, { small: true }),
    ),
    ui.confirm ? buttons(view, ui, act, { small: true }) : null,
    steps(view).length ? progressBar(view, badge(view).label) : null,
    troubles(view, ui),
  );
}
