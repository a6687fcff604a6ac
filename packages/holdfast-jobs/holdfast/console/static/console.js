// The console works without this file. It adds local times, keys and live regions.
(() => {
  "use strict";
  const short = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" });
  const long = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });

  // Times in the viewer's zone. An element with data-keep keeps its text, which is an age.
  function writeTimes(root) {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      time.title = long.format(at);
      if (!("keep" in time.dataset)) time.textContent = short.format(at);
    }
  }

  const rows = () => [...document.querySelectorAll("[data-rows] tr[data-row]")];
  function move(by) {
    const found = rows();
    if (!found.length) return;
    const at = found.findIndex((row) => row.getAttribute("aria-selected") === "true");
    const next = at < 0 ? (by > 0 ? 0 : found.length - 1) : Math.min(found.length - 1, Math.max(0, at + by));
    if (at >= 0) found[at].removeAttribute("aria-selected");
    found[next].setAttribute("aria-selected", "true");
    const open = found[next].querySelector("a[href]");
    if (open) open.focus({ preventScroll: true });
    found[next].scrollIntoView({ block: "nearest" });
  }

  const isTyping = (target) => target.closest("input, textarea, select, [contenteditable]") !== null;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) {
      if (event.key === "Escape" && isTyping(event.target)) event.target.blur();
      return;
    }
    const help = document.getElementById("help");
    switch (event.key) {
      case "/": document.getElementById("find")?.focus(); event.preventDefault(); break;
      case "j": move(1); break;
      case "k": move(-1); break;
      case "g": location.href = document.querySelector(".brand").href; break;
      case "?": if (help && !help.open) help.showModal(); break;
    }
  });

  document.addEventListener("click", (event) => {
    const target = event.target.closest("[data-help], [data-close], [data-back], [data-copy]");
    if (!target) return;
    if ("help" in target.dataset) document.getElementById("help").showModal();
    if ("close" in target.dataset) target.closest("dialog").close();
    if ("back" in target.dataset && history.length > 1) { event.preventDefault(); history.back(); }
    if ("copy" in target.dataset) navigator.clipboard?.writeText(target.dataset.copy);
  });

  // A select with data-submit sends its form at once.
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-submit]")) event.target.form.requestSubmit();
  });

  // The form of an opened action gets the focus.
  document.addEventListener("toggle", (event) => {
    if (event.target.matches("details.act") && event.target.open) event.target.querySelector("input:not([type=hidden]), select, textarea")?.focus();
  }, true);

  // A live region waits while the tab is hidden, or while a person fills in a form inside it.
  document.addEventListener("htmx:before:request", (event) => {
    const region = event.target.closest?.("[data-live]");
    if (region && (document.hidden || region.querySelector("details[open], form :focus"))) event.preventDefault();
  });
  // On a phone the navigation scrolls sideways.
  const nav = document.querySelector(".side nav");
  const here = nav?.querySelector("[aria-current]");
  if (here) nav.scrollLeft = here.offsetLeft - nav.offsetLeft - 16;
  document.addEventListener("htmx:after:swap", () => writeTimes(document));
  writeTimes(document);
})();
