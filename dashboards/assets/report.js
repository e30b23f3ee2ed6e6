"use strict";
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const partners = read("dark-colors");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const config = {
    displaylogo: false, showSendToCloud: false, showEditInChartStudio: false, plotlyServerURL: "", responsive: true,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "zoomIn2d", "zoomOut2d", "pan2d", "zoom2d", "autoScale2d"],
  };
  const narrow = matchMedia("(max-width: 640px)");
  const texts = new Set(["text", "ticktext", "name", "hovertemplate", "x", "y", "z", "customdata"]);
  let printing = false;

  // every colour of the light edition has one partner in the dark one; #rrggbbaa keeps its alpha
  function dark(value, key) {
    if (texts.has(key)) return value;
    if (typeof value === "string" && /^#[0-9a-f]{6}([0-9a-f]{2})?$/.test(value)) {
      return (partners[value.slice(0, 7)] || value.slice(0, 7)) + value.slice(7);
    }
    if (Array.isArray(value)) return value.map((item) => dark(item));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, dark(item, name)]));
    }
    return value;
  }

  const plots = [...document.querySelectorAll(".plot")].map((element) => ({
    element, hidden: new Set(), figure: read(element.dataset.figure),
  }));

  // a long text in two lines, broken at the joint that is nearest its middle
  function halved(text) {
    if (text.length <= 28 || text.includes("<br>")) return text;
    const joints = [...text.matchAll(/ [·=] /g)].map((found) => found.index);
    const far = (place) => Math.abs(place - text.length / 2);
    const best = joints.sort((a, b) => far(a) - far(b))[0];
    return best === undefined ? text : text.slice(0, best) + "<br>" + text.slice(best + 1);
  }

  const inLines = (text) => text.replace(/<br>/g, " ").replace(/(.{1,44})(?: |$)/g, "$1<br>").replace(/<br>$/, "");

  // on a narrow screen every second tick, counted from zero where it has one, and smaller names in more lines
  function thin(layout) {
    const { xaxis, yaxis } = layout;
    xaxis.nticks = 4;
    if (xaxis.title?.text) xaxis.title.text = inLines(xaxis.title.text);
    yaxis.tickfont = { ...yaxis.tickfont, size: 11 };
    for (const note of layout.annotations || []) note.text = halved(note.text);
    if (yaxis.ticktext) {
      const names = yaxis.ticktext.map(halved);
      layout.height += 9 * names.filter((name, place) => name !== yaxis.ticktext[place]).length;
      yaxis.ticktext = names;
    }
    if (!xaxis.tickvals || xaxis.tickvals.length < 5) return;
    const middle = Math.max(xaxis.tickvals.indexOf(0), 0);
    const kept = (item, place) => (place - middle) % 2 === 0;
    xaxis.tickvals = xaxis.tickvals.filter(kept);
    if (xaxis.ticktext) xaxis.ticktext = xaxis.ticktext.filter(kept);
  }

  // names of rows above their bars
  function raise(layout) {
    const place = { x: 0, xref: "paper", xanchor: "left", yanchor: "bottom", showarrow: false, font: layout.yaxis.tickfont };
    layout.annotations = layout.yaxis.ticktext.map((text, y) => ({ text, y, ...place }));
    layout.yaxis.showticklabels = false;
    if (layout.xaxis.title?.text) layout.xaxis.title.text = inLines(layout.xaxis.title.text);
  }

  const linesOf = (names) => names.length * Math.max(...names.map((name) => name.split("<br>").length), 0);

  // three figures on a page, two of those with numbers in fields; rows of names get smaller letters
  function fitPage(data, layout) {
    const rows = linesOf(layout.yaxis?.ticktext || []);
    const height = Math.max(data.some((trace) => trace.type === "heatmap") ? 380 : 260, 60 + 12 * rows);
    if (layout.height <= height) return;
    layout.height = height;
    for (const name of ["yaxis", "yaxis2"]) if (layout[name]) layout[name].tickfont = { ...layout[name].tickfont, size: 10 };
    for (const trace of data) if (rows > 12 && trace.marker?.size > 6) trace.marker = { ...trace.marker, size: 6 };
  }

  function draw(plot) {
    const { data, layout } = system.matches && !printing ? dark(plot.figure) : structuredClone(plot.figure);
    for (const trace of data) if (plot.hidden.has(trace.legendgroup)) trace.visible = false;
    if (narrow.matches && !plot.element.closest(".wide")) thin(layout); // panels side by side scroll instead
    if (narrow.matches && !printing && layout.yaxis2?.ticktext) raise(layout);
    if (printing) fitPage(data, layout);
    plot.element.style.height = `${layout.height}px`;
    return Plotly.react(plot.element, data, layout, config);
  }

  const isFolded = (plot) => plot.element.closest("details.fold:not([open])");

  function drawAll() {
    return Promise.all(plots.filter((plot) => !isFolded(plot)).map(draw));
  }

  document.addEventListener("toggle", ({ target }) => {
    if (target.open && !printing) plots.filter((plot) => target.contains(plot.element)).forEach(draw);
  }, true);

  // a link to a folded figure opens it
  function openTarget() {
    const fold = document.getElementById(decodeURIComponent(location.hash.slice(1)))?.querySelector("details.fold");
    if (fold) fold.open = true;
  }

  for (const legend of document.querySelectorAll(".legend")) {
    const own = plots.filter((plot) => legend.parentElement.contains(plot.element));
    legend.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      const shown = button.getAttribute("aria-pressed") === "true";
      button.setAttribute("aria-pressed", String(!shown));
      for (const plot of own) {
        plot.hidden[shown ? "add" : "delete"](button.dataset.key);
        draw(plot);
      }
    });
  }

  function compare(one, other) {
    const [a, b] = [Number(one), Number(other)];
    return Number.isNaN(a) || Number.isNaN(b) ? one.localeCompare(other, "en", { numeric: true }) : a - b;
  }

  function sortBy(table, head) {
    const heads = [...head.parentElement.children];
    const place = heads.indexOf(head);
    const falling = head.getAttribute("aria-sort") === "ascending";
    for (const each of heads) each.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", falling ? "descending" : "ascending");
    const body = table.querySelector("tbody.sorted");
    const value = (row) => row.children[place].dataset.value;
    const known = [...body.rows].filter((row) => value(row) !== undefined);
    const unknown = [...body.rows].filter((row) => value(row) === undefined); // last, whichever way
    known.sort((a, b) => compare(value(a), value(b)) * (falling ? -1 : 1));
    body.append(...known, ...unknown);
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    for (const button of table.querySelectorAll("thead button")) {
      button.addEventListener("click", () => sortBy(table, button.closest("th")));
    }
  }

  function copyOld(text) {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }

  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch (refused) { // no permission, or a browser that calls file: insecure
      return copyOld(text);
    }
  }

  const status = document.getElementById("status");
  for (const button of document.querySelectorAll("button.copy")) {
    const words = button.textContent;
    button.addEventListener("click", async () => {
      const done = await copy(button.dataset.csv);
      button.textContent = done ? "Copied" : "The browser refused";
      status.textContent = button.textContent;
      setTimeout(() => { button.textContent = words; }, 1800);
    });
  }

  // a list of what is on paper, with links that a PDF keeps
  function listContents() {
    const header = document.querySelector("header.page");
    if (!header) return; // the gallery
    const heads = [...document.querySelectorAll("section h2, section h3")].filter((head) => head.textContent.trim());
    const list = document.createElement("ol");
    heads.forEach((head, place) => {
      const block = head.closest("figure, .block") || head;
      block.id = block.id || `part-${place}`;
      const link = Object.assign(document.createElement("a"), { href: `#${block.id}`, textContent: head.textContent });
      const item = document.createElement("li");
      item.className = head.tagName.toLowerCase();
      item.append(link);
      list.append(item);
    });
    const contents = Object.assign(document.createElement("nav"), { className: "contents" });
    contents.setAttribute("aria-label", "Contents");
    contents.append(list);
    header.append(contents);
  }

  listContents();
  system.addEventListener("change", drawAll);
  narrow.addEventListener("change", drawAll);
  const closed = [];
  addEventListener("beforeprint", () => {
    printing = true;
    closed.push(...document.querySelectorAll("details.fold:not([open])"));
    for (const fold of closed) fold.open = true;
    drawAll();
  });
  addEventListener("afterprint", () => {
    printing = false;
    for (const fold of closed.splice(0)) fold.open = false;
    drawAll();
  });
  addEventListener("hashchange", openTarget);
  openTarget();
  drawAll().then(() => { document.documentElement.dataset.drawn = "true"; });
})();
