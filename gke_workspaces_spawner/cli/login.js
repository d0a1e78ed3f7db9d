"use strict";
// The fragment never left the browser: take it off the address bar, so that it stays in no history, and post it once.
function redeem() {
  const ticket = location.hash.slice(1);
  if (ticket) {
    history.replaceState(null, "", location.pathname + location.search);
    const form = document.getElementById("form");
    form.elements.ticket.value = ticket;
    form.submit();
  }
}
redeem();
addEventListener("hashchange", redeem); // a link that is opened where this page is already loads nothing
