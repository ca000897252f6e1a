// Links and forms within the site swap what is shown instead of loading a page anew; history, scroll and focus go along, and
// whatever does not work is left to the browser. `loadfactor.visit` opens an address so, `loadfactor.renew` brings the page up
// to date in place: nodes that stay as they are keep focus, selection and what is unfolded.
"use strict";
window.loadfactor = (() => {
  const PROGRESS_MS = 200, SCROLL_MS = 150, CHANGING_MS = 150, HOLD_MS = 400, STILL_PX = 6;
  const OURS = "data-ours"; // of elements that scripts add
  const drawn = new WeakMap(); // figures, whose scripts add to them, as they came
  const announced = make("div", { class: "announced", role: "status" });
  const progress = make("div", { class: "progress", hidden: "" });
  let tag = null; // of the page that is shown, where its answer was read here
  let shown = strip(location.href);
  let going = null;

  // -- going somewhere

  // Open an address. `how` is "push", "replace", "back" (the history is there already) or "renew" (in place, for a form that answers).
  async function visit(address, how = "push", y = 0) {
    going?.abort();
    const own = (going = new AbortController());
    const slow = setTimeout(() => { progress.hidden = false; main()?.setAttribute("aria-busy", "true"); }, PROGRESS_MS);
    try {
      const answer = await read(address, { signal: own.signal });
      if (going !== own) return;
      if (!answer.page) throw new Error(`answered ${answer.status}`);
      if (how === "push") history.pushState({ y: 0 }, "", address);
      else if (how !== "back") history.replaceState({ y: scrollY }, "", address);
      shown = strip(address);
      tag = answer.tag;
      if (how === "renew") renew(answer.page);
      else swap(answer.page, address, y);
    } catch (error) {
      if (error.name === "AbortError") return;
      if (how === "back") location.reload();
      else location.assign(address);
    } finally {
      clearTimeout(slow);
      if (going === own) { going = null; progress.hidden = true; main()?.removeAttribute("aria-busy"); }
    }
  }

  // Ask for a page: its status, its tag, and the document, which is null where it is no page of this program as it is loaded.
  async function read(address, options) {
    const response = await fetch(strip(address), { ...options, headers: { Accept: "text/html", ...options.headers } });
    const isHtml = (response.headers.get("Content-Type") ?? "").startsWith("text/html");
    const page = response.ok && isHtml ? new DOMParser().parseFromString(await response.text(), "text/html") : null;
    const isAlike = page?.getElementById("main") && assets(page) === assets(document);
    return { status: response.status, response, tag: response.headers.get("ETag"), page: isAlike ? page : null };
  }

  function swap(page, address, y) {
    document.title = page.title;
    document.body.replaceChildren(...page.body.childNodes, announced, progress);
    const heading = document.querySelector("#main h1");
    heading?.setAttribute("tabindex", "-1");
    heading?.focus({ preventScroll: true });
    const named = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (named && !y) named.scrollIntoView();
    else scrollTo(0, y);
    announced.textContent = page.title;
    tell();
  }

  function tell() {
    for (const figure of document.querySelectorAll("figure")) if (!drawn.has(figure)) drawn.set(figure, figure.outerHTML);
    document.dispatchEvent(new Event("loadfactor:shown"));
  }

  // -- bringing up to date in place

  function renew(page) {
    const focused = document.activeElement;
    document.title = page.title;
    renewChildren(document.body, page.body);
    const kept = focused?.isConnected ? focused : focused?.id && document.getElementById(focused.id);
    if (kept && kept !== document.activeElement) kept.focus({ preventScroll: true });
    tell();
  }

  function renewNode(old, fresh) {
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.data !== fresh.data) old.data = fresh.data;
    } else if (old.nodeName === "FIGURE") {
      if (drawn.get(old) === fresh.outerHTML) return;
      if (old.dataset.heat === "drawn") {
        drawn.set(old, fresh.outerHTML);
        old.dataset.heat = "stale"; // its script asks for the cells anew, and keeps the canvas
        return;
      }
      const isFocused = old === document.activeElement;
      old.replaceWith(fresh);
      if (isFocused) setTimeout(() => fresh.focus({ preventScroll: true })); // when its script made that possible
    } else {
      const isUnfolded = old.nodeName === "DETAILS" && old.open;
      for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && name !== "tabindex") old.removeAttribute(name);
      for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
      if (isUnfolded) old.open = true;
      renewChildren(old, fresh);
    }
  }

  // Each new child takes the place of the first old one of its kind and name, so that rows and sections stay themselves.
  function renewChildren(old, fresh) {
    const left = [...old.childNodes].filter((node) => !node.hasAttribute?.(OURS)).map((node) => [name(node), node]);
    let at = left[0]?.[1] ?? null;
    for (const child of [...fresh.childNodes]) {
      const of = name(child);
      const index = left.findIndex(([known]) => known === of);
      if (index < 0) {
        old.insertBefore(child, at);
        continue;
      }
      const [[, node]] = left.splice(index, 1);
      if (node === at) at = at.nextSibling;
      else old.insertBefore(node, at);
      renewNode(node, child);
    }
    for (const [, node] of left) node.remove();
  }

  function name(node) {
    return `${node.nodeName} ${node.id || (node.querySelector?.(":scope > :is(h2, th, label, legend)")?.textContent ?? "")}`;
  }

  // -- what a reader does

  function isOurs(address) {
    return address.origin === location.origin && !address.searchParams.has("format") && !address.pathname.includes("/static/");
  }

  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href]");
    const isPlain = !event.defaultPrevented && event.button === 0 && !(event.ctrlKey || event.metaKey || event.shiftKey || event.altKey);
    if (!link || !isPlain || link.target || link.hasAttribute("download")) return;
    const address = new URL(link.href);
    if (!isOurs(address) || (address.hash && strip(address.href) === shown)) return;
    event.preventDefault();
    visit(address.href);
  });

  document.addEventListener("submit", (event) => {
    const address = !event.defaultPrevented && addressOf(event.target, event.submitter);
    if (!address) return;
    event.preventDefault();
    visit(address);
  });

  let changing = 0; // a form that says data-live answers whenever one of its fields was changed
  document.addEventListener("change", (event) => {
    const form = event.target.form;
    if (!form || !("live" in form.dataset)) return;
    clearTimeout(changing);
    changing = setTimeout(() => form.isConnected && visit(addressOf(form), "renew"), CHANGING_MS);
  });

  // The address that a form asks for, without fields that are empty; null of one that writes.
  function addressOf(form, submitter = null) {
    const address = new URL(submitter?.formAction || form.action);
    if (form.method !== "get" || form.target || !isOurs(address)) return null;
    const fields = [...new FormData(form, submitter)].filter(([, value]) => value !== "");
    address.search = new URLSearchParams(fields);
    return address.href;
  }

  addEventListener("popstate", (event) => {
    if (strip(location.href) !== shown) visit(location.href, "back", event.state?.y ?? 0);
  });

  let scrolling = 0;
  addEventListener("scroll", () => {
    clearTimeout(scrolling);
    scrolling = setTimeout(() => going || history.replaceState({ y: scrollY }, ""), SCROLL_MS);
  }, { passive: true });

  // -- windows as addresses

  // The state of this page for another window, in seconds since 1970, on this page or another one.
  function openWindow(from, to, zone, path = location.pathname, changed = {}) {
    const address = new URL(path, location.href);
    address.search = location.search;
    for (const name of ["last", "offset"]) address.searchParams.delete(name);
    for (const [name, value] of Object.entries({ from: writeMoment(from, zone), to: writeMoment(to, zone), ...changed })) {
      if (value) address.searchParams.set(name, value);
      else address.searchParams.delete(name);
    }
    address.search = address.search.replaceAll("%3A", ":");
    visit(address.href);
  }

  // A moment as addresses have it, by the clock of the page's zone.
  function writeMoment(at, zone) {
    const text = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "short", timeZone: zone }).format(at * 1000);
    return text.endsWith("00:00") ? text.slice(0, 10) : text.replace(" ", "T");
  }

  function clock(zone, form) {
    return new Intl.DateTimeFormat("en-GB", { ...form, timeZone: zone });
  }

  // -- numbers

  // A number as the page has them: a reader who may take a comma for that of a fraction gets thousands parted by narrow spaces.
  function part(text) {
    return document.documentElement.dataset.thousands === "space" ? text.replace(/(\d),(?=\d{3})/g, "$1\u202f") : text;
  }

  // -- fingers

  // Calls `then` when a finger has stayed where it went down: what follows chooses. One that moves first looks, or scrolls.
  function whenHeld(element, down, then) {
    const over = new AbortController();
    const timer = setTimeout(() => { over.abort(); then(); }, HOLD_MS);
    const end = ({ type, clientX, clientY }) => {
      if (type === "pointermove" && Math.hypot(clientX - down.clientX, clientY - down.clientY) < STILL_PX) return;
      clearTimeout(timer);
      over.abort();
    };
    for (const kind of ["pointermove", "pointerup", "pointercancel"]) element.addEventListener(kind, end, { signal: over.signal });
  }

  // -- parts

  function strip(address) {
    return address.replace(/#.*/, "");
  }

  function main() {
    return document.querySelector("#main");
  }

  function assets(page) {
    return [...page.querySelectorAll("head link[rel=stylesheet], head script")].map((one) => one.getAttribute("href") ?? one.getAttribute("src")).join();
  }

  function make(kind, attributes) {
    const made = document.createElement(kind);
    for (const [key, value] of Object.entries({ ...attributes, [OURS]: "" })) made.setAttribute(key, value);
    return made;
  }

  history.scrollRestoration = "manual";
  document.body.append(announced, progress);
  for (const figure of document.querySelectorAll("figure")) drawn.set(figure, figure.outerHTML); // before scripts add to them
  if (history.state?.y) scrollTo(0, history.state.y);
  return { visit, read, renew, make, openWindow, whenHeld, part, clock, get tag() { return tag; }, set tag(of) { tag = of; } };
})();
