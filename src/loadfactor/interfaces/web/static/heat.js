// The heat map of GPUs or nodes by hour on a canvas, from one byte a cell (interfaces/web/heat.py), in place of the picture that the
// server drew: pointing or arrow keys say what a cell is, Enter or a click opens it; dragging, a finger only when it was held still
// first, or Shift with arrow keys opens those hours.
"use strict";
(() => {
  const UNOBSERVED = 255, DOWN = 254, IDLE = 253, FREE = 252, NOTHING = 251, WHOLE_SHARE = 200;
  // Of each state the class of its colour, its words, and where its pattern shows the ground through.
  const STATES = {
    [IDLE]: ["s1", "held and idle", (x, y) => (x + y) % 6 < 1.5],
    [FREE]: ["rule", "held by nobody", null],
    [DOWN]: ["s3", "down", (x, y) => (x + y) % 6 < 1.2 || (x - y + 6000) % 6 < 1.2],
    [UNOBSERVED]: ["s6", "held and unobserved", (x, y) => y % 5 < 1.5],
    [NOTHING]: ["ground", "nothing known", null],
  };
  const LEVELS = 6, TALL_PX = 420, MOST_ROW_PX = 18, GAP_FROM_PX = 6, LEAST_DRAG_PX = 6, BELOW_PX = 24, LABEL_PX = 13, TICK_PX = 84;
  const TICK_HOURS = [1, 2, 3, 6, 12, 24, 48, 96, 168, 336];
  const HOUR_S = 3600, HOURS_A_DAY = 24, FAR = 10;
  let maps = [];

  class HeatMap {
    constructor(figure, facts, cells) {
      this.figure = figure;
      this.read(facts, cells);
      this.at = null; // [row, column]
      this.from = null; // the column where a choice began
      this.ofNodes = this.rows[0].length === 1;
      this.clock = loadfactor.clock(this.zone, { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
      this.canvas = document.createElement("canvas");
      this.mark = part("div", "mark");
      this.band = part("div", "band");
      this.readout = part("div", "readout");
      this.field = part("div", "heat");
      this.field.append(this.canvas, this.band, this.mark, this.readout);
      this.field.tabIndex = 0;
      this.field.setAttribute("role", "application");
      this.field.setAttribute("aria-roledescription", "heat map");
      this.field.setAttribute("aria-label", figure.getAttribute("aria-label"));
      this.announced = part("div", "announced");
      this.announced.setAttribute("role", "status");
      this.announced.hidden = false;
      this.field.hidden = false;
      figure.removeAttribute("role"); // it was a picture
      figure.removeAttribute("aria-label");
      figure.querySelectorAll("svg").forEach((svg) => svg.remove());
      figure.append(this.makeKey(), this.field, this.announced);
      this.listen();
      new ResizeObserver(() => this.draw()).observe(this.field);
    }

    read(facts, cells) {
      Object.assign(this, { cells, rows: facts.rows, columns: facts.columns, first: facts.first, step: facts.step, zone: facts.zone });
      this.figure.dataset.heat = "drawn";
    }

    // The same rows and hours, or others, as the books are now.
    renew(facts, cells) {
      this.read(facts, cells);
      if (this.at && (this.at[0] >= this.rows.length || this.at[1] >= this.columns)) this.at = this.from = null;
      this.draw();
    }

    makeKey() {
      const key = document.createElement("p");
      key.className = "heat-key";
      const palette = makePalette(this.figure);
      const swatch = (paint, width) => {
        const canvas = document.createElement("canvas");
        Object.assign(canvas, { width, height: 14 });
        const context = canvas.getContext("2d");
        const image = context.createImageData(width, 14);
        const pixels = new Uint32Array(image.data.buffer);
        for (let y = 0; y < 14; y++) for (let x = 0; x < width; x++) pixels[y * width + x] = paint(x, y);
        context.putImageData(image, 0, 0);
        return canvas;
      };
      key.append("0 % ", swatch((x) => palette.colors[Math.round(x / 89 * WHOLE_SHARE)], 90), " 100 % utilization");
      for (const code of [IDLE, FREE, DOWN, UNOBSERVED]) {
        const [, words, pattern] = STATES[code];
        key.append(" ", swatch((x, y) => (pattern?.(x, y) ? palette.ground : palette.colors[code]), 14), ` ${words}`);
      }
      const other = new URL(location.href);
      other.searchParams.set("rows", this.ofNodes ? "gpus" : "nodes");
      const link = document.createElement("a");
      link.href = other.href;
      link.textContent = this.ofNodes ? "By GPU" : "By node";
      key.append(" ", link);
      return key;
    }

    // -- drawing

    draw() {
      const width = this.field.clientWidth, ratio = window.devicePixelRatio || 1;
      if (!width) return;
      const rowPx = Math.min(MOST_ROW_PX, Math.max(1, Math.floor(TALL_PX / this.rows.length)));
      const tall = rowPx * this.rows.length;
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round((tall + BELOW_PX) * ratio);
      this.canvas.style.height = `${tall + BELOW_PX}px`;
      const context = this.canvas.getContext("2d");
      context.font = this.font = `11px ${getComputedStyle(this.field).fontFamily}`;
      const longest = Math.max(...this.rows.map(([node]) => context.measureText(node).width));
      const left = Math.min(width * 0.3, Math.ceil(longest) + 8);
      this.area = { left, width: width - left, tall, rowPx };
      const palette = makePalette(this.figure);
      this.paint(context, palette, Math.round(left * ratio), Math.round((width - left) * ratio), Math.round(tall * ratio), ratio);
      context.scale(ratio, ratio);
      this.label(context, palette);
      this.place();
    }

    paint(context, palette, left, width, tall, ratio) {
      const { cells, columns } = this;
      const image = context.createImageData(width, tall);
      const pixels = new Uint32Array(image.data.buffer);
      const gap = this.area.rowPx >= GAP_FROM_PX;
      const column = Uint32Array.from({ length: width }, (_, x) => Math.floor(x * columns / width));
      for (let y = 0; y < tall; y++) {
        const row = Math.min(this.rows.length - 1, Math.floor(y * this.rows.length / tall)) * columns;
        const isGap = gap && (y + 1) % (this.area.rowPx * ratio) < 1;
        for (let x = 0, at = y * width; x < width; x++, at++) {
          const code = cells[row + column[x]];
          const pattern = code >= NOTHING ? STATES[code][2] : null;
          pixels[at] = isGap || pattern?.(x / ratio, y / ratio) ? palette.ground : palette.colors[code];
        }
      }
      context.putImageData(image, left, 0);
    }

    label(context, { ink }) {
      const { left, width, tall, rowPx } = this.area;
      context.fillStyle = ink;
      context.font = this.font;
      context.textBaseline = "middle";
      context.textAlign = "right";
      let free = 0;
      for (let row = 0; row < this.rows.length; row++) {
        const isNamed = this.ofNodes || row === 0 || this.rows[row][0] !== this.rows[row - 1][0];
        const y = row * rowPx + rowPx / 2;
        if (!isNamed || y < free) continue;
        context.fillText(this.rows[row][0], left - 6, Math.max(y, 6), left - 8);
        free = y + LABEL_PX;
      }
      const hours = this.step / HOUR_S;
      const step = TICK_HOURS.find((one) => this.columns * hours / one * TICK_PX <= width) ?? TICK_HOURS.at(-1);
      const clock = loadfactor.clock(this.zone, { day: "numeric", month: "short", hour: "2-digit", hour12: false });
      let days = -1;
      for (let at = 0; at < this.columns; at++) {
        const parts = Object.fromEntries(clock.formatToParts((this.first + at * this.step) * 1000).map(({ type, value }) => [type, value]));
        const hour = Number(parts.hour) % HOURS_A_DAY;
        days += hour === 0;
        const isTick = step < HOURS_A_DAY ? hour % step === 0 : hour === 0 && days % (step / HOURS_A_DAY) === 0;
        if (!isTick) continue;
        const x = left + at / this.columns * width;
        context.fillRect(x, tall, 1, 4);
        context.textAlign = x > left + width - 30 ? "right" : x < left + 20 ? "left" : "center";
        context.fillText(hour === 0 ? `${parts.day} ${parts.month}` : `${parts.hour}:00`, x, tall + 13);
      }
    }

    // -- what is pointed at

    listen() {
      const field = this.field;
      field.addEventListener("pointermove", (event) => this.point(event));
      field.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && this.from === null && this.leave());
      field.addEventListener("pointerdown", (event) => this.take(event));
      field.addEventListener("pointerup", (event) => this.release(event));
      field.addEventListener("pointercancel", () => this.leave());
      field.addEventListener("contextmenu", (event) => this.from !== null && event.preventDefault());
      field.addEventListener("blur", () => this.leave());
      field.addEventListener("keydown", (event) => this.press(event));
    }

    find(event) {
      const box = this.canvas.getBoundingClientRect();
      const { left, width, tall, rowPx } = this.area;
      const x = event.clientX - box.left - left, y = event.clientY - box.top;
      const isHeld = this.from !== null;
      if (!isHeld && (x < 0 || x >= width || y < 0 || y >= tall)) return null;
      const keep = (value, most) => Math.min(most - 1, Math.max(0, Math.floor(value)));
      return [keep(y / rowPx, this.rows.length), keep(x / width * this.columns, this.columns)];
    }

    point(event) {
      const at = this.find(event);
      if (at) this.show(at);
      else if (event.pointerType === "mouse") this.leave();
    }

    take(event) {
      const at = this.find(event);
      if (!at || event.button !== 0) return;
      this.again = event.pointerType === "mouse" || String(at) === String(this.at); // a finger looks first
      this.from = null;
      this.field.setPointerCapture(event.pointerId);
      this.show(at);
      const begin = () => { [this.from, this.held] = [this.at[1], event.clientX]; };
      if (event.pointerType === "mouse") begin();
      else loadfactor.whenHeld(this.field, event, () => { this.again = false; begin(); });
    }

    release(event) {
      const isDrag = this.from !== null && Math.abs(event.clientX - this.held) >= LEAST_DRAG_PX;
      if (isDrag) this.zoom();
      else if (this.at && this.again) this.open();
      this.from = null;
      this.place();
    }

    press(event) {
      const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], PageUp: [-FAR, 0], PageDown: [FAR, 0] };
      steps.Home = [0, -this.columns];
      steps.End = [0, this.columns];
      if (event.key === "Escape") this.leave();
      else if (event.key === "Enter" && this.at) this.from === null ? this.open() : this.zoom();
      else if (event.key in steps && !event.ctrlKey && !event.altKey && !event.metaKey) {
        const [row, column] = this.at ?? [0, 0];
        this.from = event.shiftKey ? (this.from ?? column) : null;
        const [down, across] = this.at ? steps[event.key] : [0, 0];
        const keep = (value, most) => Math.min(most - 1, Math.max(0, value));
        this.show([keep(row + down, this.rows.length), keep(column + across, this.columns)]);
        this.announced.textContent = this.say();
      } else return;
      event.preventDefault();
    }

    show(at) {
      this.at = at;
      this.place();
    }

    leave() {
      this.at = this.from = null;
      this.place();
    }

    say() {
      const [row, column] = this.at;
      const code = this.cells[row * this.columns + column];
      const value = code <= WHOLE_SHARE ? `${(code / WHOLE_SHARE * 100).toFixed(code < 20 ? 1 : 0)} % utilization` : STATES[code][1];
      return `${this.rows[row].at(-1)}, ${this.clock.format(this.moment(column) * 1000)}: ${value}`;
    }

    // Put the mark, the band of what is chosen, and the words where they belong.
    place() {
      this.mark.hidden = this.readout.hidden = !this.at;
      this.band.hidden = !this.at || this.from === null || this.from === this.at[1];
      if (!this.at || !this.area) return;
      const { left, width, tall, rowPx } = this.area;
      const [row, column] = this.at;
      const across = (at) => left + at / this.columns * width;
      move(this.mark, across(column), row * rowPx, Math.max(3, width / this.columns), Math.max(3, rowPx));
      const first = Math.min(this.from ?? column, column), last = Math.max(this.from ?? column, column);
      move(this.band, across(first), 0, across(last + 1) - across(first), tall);
      this.readout.textContent = this.say();
      const x = across(column) + (column < this.columns / 2 ? 14 : -14 - this.readout.offsetWidth);
      this.readout.style.left = `${Math.max(0, Math.min(left + width - this.readout.offsetWidth, x))}px`;
      this.readout.style.top = `${Math.max(0, row * rowPx - this.readout.offsetHeight - 6)}px`;
    }

    moment(column) {
      return this.first + column * this.step;
    }

    open() {
      const [row, column] = this.at;
      const name = this.rows[row].at(-1);
      const [path, changed] = this.ofNodes ? [location.pathname, { rows: "gpus", where: this.whereNode(name) }] : [`${location.pathname}/${encodeURIComponent(name)}`, { rows: "" }];
      loadfactor.openWindow(this.moment(column), this.moment(column + 1), this.zone, path, changed);
    }

    whereNode(name) {
      const others = (new URL(location.href).searchParams.get("where") ?? "").split(",").filter((one) => one && !one.startsWith("node="));
      return [...others, `node=${name}`].join(",");
    }

    zoom() {
      const [first, last] = [this.from, this.at[1]].sort((a, b) => a - b);
      loadfactor.openWindow(this.moment(first), this.moment(last + 1), this.zone);
    }
  }

  function part(kind, name) {
    const made = document.createElement(kind);
    made.className = name;
    made.hidden = true;
    return made;
  }

  function move(element, left, top, width, height) {
    Object.assign(element.style, { left: `${left}px`, top: `${top}px`, width: `${width}px`, height: `${height}px` });
  }

  // The colours of the style sheet, for light or dark as the reader has it, as pixels by the byte of a cell.
  function makePalette(figure) {
    const probe = document.createElement("span");
    probe.className = "picture";
    figure.append(probe);
    const read = (name) => {
      const one = document.createElement("i");
      one.className = name;
      probe.append(one);
      const context = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d");
      context.fillStyle = getComputedStyle(one).getPropertyValue("--c").trim();
      context.fillRect(0, 0, 1, 1);
      return [...context.getImageData(0, 0, 1, 1).data];
    };
    const pixel = ([red, green, blue]) => new Uint32Array(new Uint8ClampedArray([red, green, blue, 255]).buffer)[0];
    const scale = Array.from({ length: LEVELS }, (_, level) => read(`h${level}`));
    const colors = new Uint32Array(256);
    for (let code = 0; code <= WHOLE_SHARE; code++) {
      const at = code / WHOLE_SHARE * (LEVELS - 1), level = Math.min(LEVELS - 2, Math.floor(at));
      colors[code] = pixel([0, 1, 2].map((part) => scale[level][part] + (scale[level + 1][part] - scale[level][part]) * (at - level)));
    }
    for (const [code, [name]] of Object.entries(STATES)) colors[code] = pixel(read(name));
    const [ground, ink] = [read("ground"), read("ink")];
    probe.remove();
    return { colors, ground: pixel(ground), ink: `rgb(${ink.slice(0, 3)})` };
  }

  async function attach() {
    maps = maps.filter((map) => map.figure.isConnected);
    const address = document.querySelector("#main")?.dataset.cells;
    const figure = address && document.querySelector("figure[data-heat]");
    if (!figure || figure.dataset.heat === "drawn") return;
    const response = await fetch(address).catch(() => null); // then the picture stays
    if (!response?.ok || !figure.isConnected) return;
    const bytes = new Uint8Array(await response.arrayBuffer());
    const end = bytes.indexOf(10);
    const facts = JSON.parse(new TextDecoder().decode(bytes.subarray(0, end)));
    if (!facts.rows?.length || !figure.isConnected || figure.dataset.heat === "drawn") return;
    const known = maps.find((map) => map.figure === figure);
    if (known) known.renew(facts, bytes.subarray(end + 1));
    else maps.push(new HeatMap(figure, facts, bytes.subarray(end + 1)));
  }

  document.addEventListener("loadfactor:shown", attach);
  for (const look of ["(prefers-color-scheme: dark)", "print"]) {
    matchMedia(look).addEventListener("change", () => maps.forEach((map) => map.draw()));
  }
  attach();
})();
