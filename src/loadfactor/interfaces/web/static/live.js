// A page over books that go on asks for itself anew: at a constant rate, only while it is looked at, less often while that fails,
// and with the tag of what it shows, so that books as they were cost next to nothing. Where it could not, it says as of when it is.
"use strict";
(() => {
  const MS_PER_S = 1000, MS_PER_MIN = 60_000, LONGEST_MS = 10 * MS_PER_MIN;
  const note = loadfactor.make("p", { class: "as-of", role: "status", hidden: "" });
  let address = ""; // whose tag it is
  let fresh = Date.now(); // when the page was known to be as the books are
  let fails = 0;
  let timer = 0;
  let isAsking = false;

  function every() {
    return Number(document.querySelector("#main")?.dataset.poll ?? 0) * MS_PER_S;
  }

  function plan() {
    clearTimeout(timer);
    if (every() && !document.hidden) timer = setTimeout(ask, Math.min(LONGEST_MS, every() * 2 ** fails));
  }

  async function ask() {
    if (isAsking) return;
    isAsking = true;
    const opened = location.href;
    try {
      const tag = loadfactor.tag;
      const answer = await loadfactor.read(opened, { cache: "no-store", headers: tag ? { "If-None-Match": tag } : {} });
      if (opened !== location.href) return; // the reader went on meanwhile
      if (answer.status === 304 || answer.page) {
        if (answer.page) { loadfactor.tag = answer.tag; loadfactor.renew(answer.page); }
        fresh = Date.now();
        fails = 0;
      } else if (answer.response.redirected) {
        return say("You are signed out. Load the page again to sign in."); // and ask no more
      } else if (answer.response.ok) {
        return location.reload(); // the program is another one
      } else fails += 1;
    } catch {
      fails += 1;
    } finally {
      isAsking = false;
    }
    age();
    plan();
  }

  // What a page says that could not ask twice.
  function age() {
    const minutes = Math.floor((Date.now() - fresh) / MS_PER_MIN);
    const at = new Date(fresh).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    say(fails && Date.now() - fresh >= 2 * every() ? `As of ${at}, ${minutes} min ago: the server does not answer.` : "");
  }

  function say(words) {
    note.hidden = !words;
    if (note.textContent !== words) note.textContent = words;
    if (!note.isConnected) document.body.append(note);
  }

  document.addEventListener("loadfactor:shown", () => {
    if (address !== location.href) { address = location.href; fresh = Date.now(); fails = 0; say(""); plan(); }
  });
  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    if (document.hidden || !every()) return;
    age();
    if (Date.now() - fresh >= every()) ask();
    else plan();
  });
  address = location.href;
  plan();
})();
