// A cursor in charts of lines: values where somebody points, taps or steps with arrow keys; the same moment in every chart of
// time of the page. Dragging over a chart of time, with a finger that was held still first, or Shift with arrow keys and Enter, opens
// the address of that window.
// A chart comes as a figure with its values in data-chart (interfaces/charts/cursor.py) and, for each of its pictures, where
// the panel lies and what its axes span in data-area.
"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const HOUR_S = 3600, DAY_S = 86400, LEAST_DRAG_PX = 6, PAGE_SHARE = 0.1;
  let charts = [];
  let moment = null; // the one of all charts of time: seconds since 1970

  class Chart {
    constructor(figure) {
      const facts = JSON.parse(figure.dataset.chart);
      this.figure = figure;
      this.names = facts.names;
      this.rows = facts.y;
      this.label = facts.label;
      this.isLog = facts.log;
      this.isLogY = facts.log_y;
      this.isTime = Boolean(facts.moments);
      let sum = 0;
      this.x = this.isTime ? facts.moments.map((step) => (sum += step)) : facts.x;
      this.step = this.isTime ? this.x[this.x.length - 1] - this.x[this.x.length - 2] : 0;
      this.at = facts.at;
      this.clock = this.isTime && makeClock(facts.zone, this.step);
      this.zone = facts.zone;
      this.index = null;
      this.from = null; // the other end of what is being chosen
      this.readout = document.createElement("div");
      this.readout.className = "readout";
      this.readout.hidden = true;
      figure.append(this.readout);
      this.listen();
    }

    listen() {
      const figure = this.figure;
      figure.tabIndex = 0;
      figure.setAttribute("role", "slider"); // what is chosen along an axis, for who hears the page
      figure.setAttribute("aria-valuemin", 0);
      figure.setAttribute("aria-valuemax", this.x.length - 1);
      figure.setAttribute("aria-valuenow", 0);
      figure.setAttribute("aria-valuetext", this.say(0));
      figure.addEventListener("keydown", (event) => this.press(event));
      figure.addEventListener("blur", () => this.leave());
      figure.addEventListener("pointerdown", (event) => this.take(event));
      figure.addEventListener("pointermove", (event) => this.follow(event));
      figure.addEventListener("pointerup", (event) => this.release(event));
      figure.addEventListener("pointercancel", () => this.leave());
      figure.addEventListener("contextmenu", (event) => this.from !== null && event.preventDefault()); // of a finger that is held
      figure.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && this.leave());
    }

    // -- what is pointed at

    take(event) {
      const index = this.find(event);
      if (index === null) return;
      this.from = null;
      this.figure.setPointerCapture(event.pointerId);
      this.show(index);
      if (!this.isTime || event.button !== 0) return;
      const begin = () => { this.from = this.index; this.held = event.clientX; this.draw(); };
      if (event.pointerType === "mouse") begin();
      else loadfactor.whenHeld(this.figure, event, begin);
    }

    follow(event) {
      const index = this.find(event);
      if (index !== null) this.show(index);
      else if (this.from === null && event.pointerType === "mouse") this.leave();
    }

    release(event) {
      const isDrag = this.from !== null && Math.abs(event.clientX - this.held) >= LEAST_DRAG_PX;
      if (isDrag) this.choose();
      this.from = null;
      if (!isDrag) this.draw();
    }

    press(event) {
      const last = this.x.length - 1;
      const here = this.index ?? 0;
      const page = Math.max(1, Math.round(last * PAGE_SHARE));
      const steps = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageUp: page, PageDown: -page, Home: -last, End: last };
      if (event.key === "Escape") this.leave();
      else if (event.key === "Enter" && this.from !== null) this.choose();
      else if (event.key in steps && !event.ctrlKey && !event.altKey && !event.metaKey) {
        this.from = event.shiftKey && this.isTime ? (this.from ?? here) : null;
        this.show(this.index === null ? (event.key === "End" ? last : 0) : Math.min(last, Math.max(0, here + steps[event.key])));
      } else return;
      event.preventDefault();
    }

    // The index of the value nearest to a pointer; null outside of the panel.
    find(event) {
      const picture = this.picture();
      if (!picture) return null;
      const { box, scale, left, right, low, high } = picture;
      const across = (event.clientX - box.left) / scale;
      const isHeld = this.from !== null || event.pointerType !== "mouse";
      if (!isHeld && (across < left - 4 || across > right + 4)) return null;
      const share = Math.min(1, Math.max(0, (across - left) / (right - left)));
      return this.nearest(this.isLog ? 10 ** (low + share * (high - low)) : low + share * (high - low));
    }

    nearest(x) {
      let first = 0, last = this.x.length - 1;
      while (last - first > 1) {
        const middle = (first + last) >> 1;
        if (this.x[middle] <= x) first = middle;
        else last = middle;
      }
      return x - this.x[first] <= this.x[last] - x ? first : last;
    }

    // -- what is shown

    // The picture that is laid out for this width, and where things lie on it.
    picture() {
      const svg = [...this.figure.querySelectorAll("svg")].find((one) => one.getBoundingClientRect().width);
      if (!svg) return null;
      const [left, top, right, bottom, low, high, lowY, highY] = svg.dataset.area.split(" ").map(Number);
      const box = svg.getBoundingClientRect();
      return { svg, box, scale: box.width / svg.viewBox.baseVal.width, left, top, right, bottom, low, high, lowY, highY };
    }

    show(index) {
      this.index = index;
      this.figure.setAttribute("aria-valuenow", index);
      this.figure.setAttribute("aria-valuetext", this.say(index));
      if (this.isTime) share(this, this.x[index]);
      else this.draw();
    }

    // The moment of another chart.
    showMoment(at) {
      const isOutside = at === null || at < this.x[0] || at > this.x[this.x.length - 1] + this.step;
      this.index = isOutside ? null : this.nearest(at);
      this.draw();
    }

    leave() {
      if (this.index === null && this.from === null) return;
      this.index = this.from = null;
      if (this.isTime) share(this, null);
      else this.draw();
    }

    draw() {
      this.figure.querySelectorAll("g.cursor").forEach((old) => old.remove());
      const picture = this.index === null ? null : this.picture();
      this.readout.hidden = !picture;
      if (!picture) return;
      const { svg, box, scale, left, top, right, bottom, low, high, lowY, highY } = picture;
      const group = add(svg, "g", { class: "cursor" });
      const across = (x) => left + ((this.isLog ? Math.log10(x) : x) - low) / (high - low) * (right - left);
      const at = across(this.x[this.index]);
      if (this.from !== null) {
        const other = across(this.x[this.from]);
        add(group, "rect", { class: "chosen", x: Math.min(at, other) - 1, y: top, width: Math.abs(at - other) + 2, height: bottom - top });
      }
      add(group, "line", { x1: at, x2: at, y1: top, y2: bottom });
      this.rows.forEach((row, series) => {
        const value = read(row[this.index]);
        const height = ((this.isLogY ? Math.log10(value) : value) - lowY) / (highY - lowY);
        if (Number.isFinite(height)) add(group, "circle", { class: `s${series % 8}`, cx: at, cy: bottom - height * (bottom - top), r: 3.5 });
      });
      this.write(box, scale, at, (left + right) / 2);
    }

    write(box, scale, at, middle) {
      const lines = this.names.map((name, series) => {
        const line = document.createElement("span");
        line.className = "picture"; // whose classes give the colours
        const key = document.createElement("i");
        key.className = `s${series % 8}`;
        const value = document.createElement("b");
        value.textContent = loadfactor.part(this.rows[series][this.index]);
        line.append(key, `${name} `, value);
        return line;
      });
      const head = document.createElement("strong");
      head.textContent = this.name(this.index);
      this.readout.replaceChildren(head, ...lines);
      const ground = this.figure.getBoundingClientRect();
      const x = box.left - ground.left + at * scale;
      const free = ground.width - this.readout.offsetWidth;
      this.readout.style.left = `${Math.max(0, Math.min(free, at < middle ? x + 12 : x - 12 - this.readout.offsetWidth))}px`;
    }

    name(index) {
      return this.isTime ? this.clock(this.x[index]) : `${this.label} ${this.at[index]}`.trim();
    }

    say(index) {
      return `${this.name(index)}: ${this.names.map((name, series) => `${name} ${loadfactor.part(this.rows[series][index])}`).join(", ")}`;
    }

    // -- a window as an address

    choose() {
      const [first, last] = [this.from, this.index].sort((a, b) => a - b);
      const start = this.x[first];
      const end = last + 1 < this.x.length ? this.x[last + 1] : this.x[last] + this.step;
      this.leave();
      loadfactor.openWindow(start, end, this.zone);
    }
  }

  function share(from, at) {
    moment = at;
    for (const chart of charts) {
      if (chart === from) chart.draw();
      else if (chart.isTime) chart.showMoment(at);
    }
  }

  function add(parent, name, attributes) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    parent.append(made);
    return made;
  }

  // A value as it is written ("1,234", "53.1 %") as a number; NaN for what is not known or has a range.
  function read(text) {
    const number = Number(text.replace(/[, %]/g, "").replace("−", "-"));
    return text.endsWith("%") ? number / 100 : number;
  }

  function makeClock(zone, step) {
    const form = { weekday: "short", day: "numeric", month: "short", year: "numeric" };
    if (step < DAY_S - HOUR_S) Object.assign(form, { hour: "2-digit", minute: "2-digit" });
    const clock = loadfactor.clock(zone, form);
    return (at) => clock.format(at * 1000);
  }

  function attach() {
    const known = new Map(charts.map((chart) => [chart.figure, chart]));
    charts = [...document.querySelectorAll("figure[data-chart]")].map((figure) => known.get(figure) ?? new Chart(figure));
    if (moment !== null) share(null, moment);
  }

  document.addEventListener("loadfactor:shown", attach);
  addEventListener("resize", () => charts.forEach((chart) => chart.index !== null && chart.draw()));
  attach();
})();
