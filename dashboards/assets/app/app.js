"use strict";
(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const theme = () => localStorage.getItem("ablate-theme") || (system.matches ? "dark" : "light");
  const set = (id, props) => window.dash_clientside.set_props(id, props);
  const control = (field, value) => set({ type: "control", field }, { value });

  // figures are drawn on the server, which has to know the theme; the first question names it
  let told = null;
  async function withTheme(layout) {
    const text = (await layout.text()).replace('"id":"theme"', `$&,"data":"${(told = theme())}"`);
    return new Response(text, { status: layout.status, headers: { "Content-Type": "application/json" } });
  }

  function tell() {
    const chosen = localStorage.getItem("ablate-theme");
    if (chosen) root.dataset.theme = chosen;
    else delete root.dataset.theme;
    if (told && told !== theme()) set("theme", { data: (told = theme()) });
  }

  function swap() {
    localStorage.setItem("ablate-theme", theme() === "dark" ? "light" : "dark");
    tell();
  }

  function pause() {
    const button = document.getElementById("pause");
    const paused = root.toggleAttribute("data-paused");
    button.textContent = paused ? "Go on" : "Pause";
    set("tick", { disabled: paused });
  }

  // at once here; the server then writes it into the address and draws it so from now on
  function toggle(button) {
    const shown = button.getAttribute("aria-pressed") === "true";
    button.setAttribute("aria-pressed", String(!shown));
    const plot = button.closest(".slot").querySelector(".js-plotly-plot");
    const places = plot.data.map((_, i) => i).filter((i) => plot.data[i].legendgroup === button.dataset.key);
    if (places.length) window.Plotly.restyle(plot, { visible: !shown }, places);
    const off = [...document.querySelectorAll('.key[aria-pressed="false"]')].map((key) => key.querySelector(".name").textContent);
    control("hide", [...new Set(off)]);
  }

  // a group that is not drawn yet joins those of the legend
  function add(button) {
    const names = [...button.closest(".slot").querySelectorAll(".legend [data-key] .name")].map((name) => name.textContent);
    control("show", [...names, button.dataset.add]);
  }

  function more(button) {
    const rest = document.getElementById("more");
    rest.hidden = !rest.hidden;
    button.setAttribute("aria-expanded", String(!rest.hidden));
  }

  async function load(details) {
    const place = details.querySelector("[data-source]");
    if (!place || !details.open) return;
    if (!place.textContent) place.textContent = "Loading …";
    try {
      const answer = await fetch(place.dataset.source);
      const text = await answer.text();
      if (answer.ok) place.innerHTML = text; // escaped where it is made
      else place.textContent = text;
    } catch {
      place.textContent = "The server does not answer.";
    }
  }

  // the same text once more makes the page anew, since no control has changed; the cursor stays where it is
  let cursor = null;
  function run(button) {
    const area = button.closest(".control").querySelector("textarea");
    if (area.value === (button.closest(".control").querySelector("input").value || "")) location.reload();
    cursor = document.activeElement === area ? area.selectionStart : null;
    control(button.dataset.field, area.value);
  }

  function keepCursor() {
    const area = document.querySelector("textarea.code-text");
    if (cursor === null || !area || document.activeElement === area) return;
    area.focus();
    area.setSelectionRange(cursor, cursor);
    cursor = null;
  }

  // dcc.Input puts the cursor of a changed text back a moment later, by when the reader may have typed more
  const select = HTMLInputElement.prototype.setSelectionRange;
  HTMLInputElement.prototype.setSelectionRange = function (...range) {
    if (this !== document.activeElement || !this.closest(".control")) select.apply(this, range);
  };

  // a painted copy of the query lies behind its transparent text
  const PARTS = /(--[^\n]*|\/\*[\s\S]*?\*\/)|('(?:[^']|'')*'?|\b\d+(?:\.\d+)?\b)|\b(select|from|where|group|order|by|all|as|join|left|right|full|cross|using|on|and|or|not|in|is|null|case|when|then|else|end|with|distinct|limit|offset|having|qualify|over|partition|union|except|intersect|desc|asc|between|like|ilike|pivot|unpivot|values|true|false|exists|lateral|cast|try_cast|filter|window|interval)\b/gi;
  const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  function paint(area) {
    const copy = area.parentElement.querySelector(".code-paint");
    if (!copy || copy.dataset.text === area.value) return;
    copy.dataset.text = area.value;
    let last = 0, html = "";
    for (const found of area.value.matchAll(PARTS)) {
      const tag = found[1] ? "em" : found[2] ? "i" : "b";
      html += `${escaped(area.value.slice(last, found.index))}<${tag}>${escaped(found[0])}</${tag}>`;
      last = found.index + found[0].length;
    }
    copy.innerHTML = `${html}${escaped(area.value.slice(last))}\n`;
    area.parentElement.classList.add("painted");
    set("draft", { data: area.value });
  }
  const paintAll = () => document.querySelectorAll(".code-box textarea").forEach(paint);
  document.addEventListener("input", (event) => event.target.matches?.(".code-box textarea") && paint(event.target));
  document.addEventListener("scroll", (event) => {
    const copy = event.target.parentElement?.querySelector?.(".code-paint");
    if (copy && event.target.tagName === "TEXTAREA") copy.scrollTop = event.target.scrollTop;
  }, true);

  // the server adds the title and the legend that the page has around a figure
  async function image(button) {
    const slot = button.closest(".slot");
    const plot = slot.querySelector(".js-plotly-plot");
    const figure = await (await fetch(button.dataset.figure)).json();
    for (const [name, { range }] of Object.entries(plot.layout).filter(([name]) => /^[xy]axis/.test(name)))
      if (range) figure.layout[name] = { ...figure.layout[name], range, autorange: false }; // as the reader has zoomed
    const size = { width: plot.clientWidth, height: figure.layout.height, scale: 2 };
    const filename = slot.id.replace(/^slot-/, "");
    window.Plotly.downloadImage(figure, { format: button.dataset.image, filename, ...size });
  }

  async function copy(button) {
    const words = button.textContent;
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = words), 1500);
    } catch {
      window.prompt("Copy this:", button.dataset.copy); // without https only this machine has a clipboard
    }
  }

  // words that new results change come as other elements; what the reader opened or closed in them stays so, until
  // another page or another run is gone to
  const folds = new Map();
  const fold = (details) => [details.closest(".slot")?.id, details.querySelector("summary")?.textContent].join(" ");
  window.addEventListener("popstate", () => folds.clear());

  // links within the app change the page without loading everything again
  function go(event, link) {
    const url = new URL(link.href);
    const other = event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0;
    if (other || url.origin !== location.origin || link.hasAttribute("download") || link.getAttribute("href")[0] === "#") return;
    event.preventDefault();
    visit(link.href);
    link.closest("details")?.removeAttribute("open");
  }

  function visit(href, up = true) {
    folds.clear();
    history.pushState({}, "", href);
    window.dispatchEvent(new CustomEvent("_dashprivate_pushstate"));
    if (up) window.scrollTo(0, 0);
  }

  function keepFolds(records) {
    if (!folds.size) return;
    for (const record of records)
      for (const node of record.addedNodes)
        if (node.nodeType === 1)
          for (const each of [...node.querySelectorAll("details"), ...(node.tagName === "DETAILS" ? [node] : [])])
            if (folds.has(fold(each))) each.open = folds.get(fold(each));
  }

  // the curves of the entry under the pointer stand out
  function highlight(button, on) {
    const plot = button.closest(".slot").querySelector(".js-plotly-plot");
    if (!plot || !plot.data) return;
    const others = plot.data.map((_, i) => i).filter((i) => plot.data[i].legendgroup !== button.dataset.key);
    if (others.length && others.length < plot.data.length) window.Plotly.restyle(plot, { opacity: on ? 0.12 : 1 }, others);
  }
  for (const [type, on] of [["mouseover", true], ["mouseout", false], ["focusin", true], ["focusout", false]])
    document.addEventListener(type, (event) => {
      const button = event.target.closest?.(".legend button.key");
      const byKeyboard = type === "focusin" ? button?.matches(":focus-visible") : true; // a click also focuses
      if (button && byKeyboard && !button.contains(event.relatedTarget)) highlight(button, on);
    });

  // the title of the one axis across, in lines that fit below it
  function fitTitle(plot) {
    const { layout, _fullLayout: drawn } = plot;
    const title = layout?.xaxis?.title?.text;
    if (!title || !drawn?._size || layout.xaxis2) return;
    const { l, w, r } = drawn._size, most = Math.max(16, Math.floor((w + 2 * Math.min(l, r)) / 6.6)), lines = [];
    for (const word of title.replaceAll("<br>", " ").split(" ")) {
      const longer = lines.length ? `${lines[lines.length - 1]} ${word}` : word;
      if (lines.length && longer.length <= most) lines[lines.length - 1] = longer;
      else lines.push(word);
    }
    if (lines.join("<br>") !== title) window.Plotly.relayout(plot, { "xaxis.title.text": lines.join("<br>") });
  }

  // names of rows stand above their bars where there is no room beside them
  function fitRows(plot) {
    const { layout, _fullLayout: drawn } = plot, names = layout?.yaxis?.ticktext;
    if (!names || !layout.yaxis2?.ticktext || !drawn?._size) return;
    const isHidden = layout.yaxis.showticklabels === false, isAbove = isHidden && layout.annotations?.length > 0;
    const above = plot.clientWidth < 600 && (isHidden || drawn._size.w < 160);
    if (above === isAbove && above === isHidden) return;
    const place = { x: 0, xref: "paper", xanchor: "left", yanchor: "bottom", showarrow: false, font: layout.yaxis.tickfont };
    const annotations = above ? names.map((text, y) => ({ text, y, ...place })) : [];
    window.Plotly.relayout(plot, { "yaxis.showticklabels": !above, annotations });
  }

  const keys = () => document.getElementById("keys");

  document.addEventListener("toggle", (event) => event.target.tagName === "DETAILS" && load(event.target), true);
  document.addEventListener("click", (event) => {
    const at = (selector) => event.target.closest(selector);
    if (at("[data-add]")) add(at("[data-add]"));
    else if (at(".legend button")) toggle(at(".legend button"));
    else if (at("#switch")) swap();
    else if (at("#pause")) pause();
    else if (at("#help")) keys().showModal();
    else if (at("#close-keys")) keys().close();
    else if (at(".ag-root-wrapper summary")) return; // rows come and go as a table scrolls
    else if (at("#page summary")) folds.set(fold(at("details")), !at("details").open);
    else if (at("button.run")) run(at("button.run"));
    else if (at("button.more")) more(at("button.more"));
    else if (at("button[data-image]")) image(at("button[data-image]"));
    else if (at("button[data-copy]")) copy(at("button[data-copy]"));
    else if (at("a[href]")) go(event, at("a[href]"));
  });

  // names of the schema that go on with the word at the cursor: first those of relations in the query; Tab takes one
  function listNames(area) {
    const word = area.value.slice(0, area.selectionStart).match(/[A-Za-z_]\w+$/)?.[0].toLowerCase();
    if (!word) return [];
    const ranks = new Map();
    const add = (name, rank) => ranks.set(name, Math.min(rank, ranks.get(name) ?? rank));
    for (const each of document.querySelectorAll("#page .schema details")) {
      const relation = each.querySelector("code").textContent.split("(")[0];
      const isAsked = new RegExp(`\\b${relation.replace(/\W/g, "\\$&")}\\b`).test(area.value);
      add(relation, 1);
      for (const line of each.querySelector(".columns").textContent.split("\n")) add(line.split(" ")[0], isAsked ? 0 : 2);
    }
    const fits = [...ranks].filter(([name]) => name.toLowerCase().startsWith(word) && name.toLowerCase() !== word);
    fits.sort(([a, i], [b, j]) => i - j || a.localeCompare(b));
    return fits.slice(0, 8).map(([name]) => [name, word.length]);
  }

  function complete(area, [name, typed]) {
    area.setSelectionRange(area.selectionStart - typed, area.selectionStart);
    document.execCommand("insertText", false, name);
  }

  // after every move of the cursor, too: a name is put where it was offered
  document.addEventListener("selectionchange", () => {
    const area = document.activeElement;
    if (!area?.matches("textarea.code-text")) return;
    const buttons = listNames(area).map((named) => {
      const button = Object.assign(document.createElement("button"), { type: "button", textContent: named[0] });
      button.addEventListener("mousedown", (event) => event.preventDefault()); // the cursor stays
      button.addEventListener("click", () => complete(area, named));
      return button;
    });
    area.closest(".control").querySelector(".completions").replaceChildren(...buttons);
  });

  let before = "";
  document.addEventListener("keydown", (event) => {
    const first = event.target.matches?.("textarea.code-text") && event.target.closest(".control").querySelector(".completions button");
    if (first && event.key === "Tab" && !event.shiftKey) {
      event.preventDefault();
      first.click();
      return;
    }
    if (first && event.key === "Escape") first.parentElement.replaceChildren();
    if (event.target.tagName === "TEXTAREA" && event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.target.closest(".control")?.querySelector("button.run")?.click();
      return;
    }
    const typing = event.target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
    if (event.ctrlKey || event.metaKey || event.altKey || typing) return;
    if (before === "g") {
      const link = [...document.querySelectorAll("#top .pages a")].find((each) => each.title.endsWith(`(g ${event.key})`));
      if (link) link.click();
    } else if (event.key === "t") swap();
    else if (event.key === "p") pause();
    else if (event.key === "?") keys().showModal();
    before = before === "g" ? "" : event.key;
  });

  // Dash drops the outputs of an answer that a later change has overtaken; this drops what the server set beside them
  let lastChange = 0;
  async function dropOvertaken(number, answer) {
    const body = await answer.text();
    if (body.includes('"Graph"')) await plotly;
    const { status, headers } = number === lastChange ? answer : { status: 204 }; // Dash: no update
    return new Response(status === 204 ? null : body, { status, headers });
  }

  // plotly is evaluated while the server makes the first page; dcc.Graph would load all of its traces, or a second copy
  const PLOTLY = "/files/app/assets/plotly.js/plotly-cartesian.min.js";
  Object.defineProperty(window, "_dashPlotlyJSURL", { get: () => PLOTLY, set: () => {} });
  let plotly = null;
  const loadPlotly = () => (plotly ??= new Promise((done) => {
    document.head.append(Object.assign(document.createElement("script"), { src: PLOTLY, onload: done, onerror: done }));
  }));

  // what a server that has gone away leaves on the page is old, and has to say so
  const ask = window.fetch;
  window.fetch = async (...given) => {
    const offline = document.getElementById("offline");
    const number = given[1]?.body?.includes?.('"output":"..page.children') ? (lastChange += 1) : 0;
    if (number) loadPlotly();
    try {
      const answer = await ask(...given);
      if (offline) offline.textContent = "";
      if (/_dash-layout$/.test(given[0])) return withTheme(answer);
      return number ? await dropOvertaken(number, answer) : answer;
    } catch (error) {
      const now = new Date().toLocaleTimeString();
      if (offline && !offline.textContent) offline.textContent = `The server has not answered since ${now}; what you see is from before.`;
      throw error;
    }
  };

  new MutationObserver((records) => {
    keepCursor();
    keepFolds(records);
    paintAll();
    for (const plot of document.querySelectorAll("#page .js-plotly-plot")) [fitTitle, fitRows].forEach((fit) => fit(plot));
    const heading = document.querySelector("#page h1");
    const title = [heading?.textContent, campaign(), "ablate"].filter(Boolean).join(" · "); // stands above a print
    const said = document.getElementById("said");
    if (document.title === title || !said) return;
    document.title = title;
    said.textContent = heading ? heading.textContent : "";
  }).observe(document.body, { childList: true, subtree: true });

  const campaign = () => location.pathname.split("/").filter(Boolean)[0] || "";
  const grid = () => new URLSearchParams(location.search).getAll("grid").map((name) => ["grid", name]);
  const inside = (page, given) => {
    const here = campaign() || document.querySelector("#top .pages a").getAttribute("href").split("/")[1];
    return `/${here}/${page}?${new URLSearchParams([...grid(), ...given])}`;
  };

  // another page with a field set, or this one, whose other fields stay; `selects` does not
  function leading(page, field, values, selects = field) {
    const given = values.map((value) => [field, value]);
    if (!location.pathname.endsWith(`/${page}`)) return inside(page, given);
    const rest = [...new URLSearchParams(location.search)].filter(([name]) => name !== field && name !== selects);
    return `${location.pathname}?${new URLSearchParams([...rest, ...given])}`;
  }

  // a box over parallel axes keeps the part of the axis next to its middle
  function brush(plot, { x, y }) {
    const axes = plot.layout.meta?.axes;
    if (!axes) return;
    window.Plotly.relayout(plot, { selections: [] });
    const axis = axes[Math.min(axes.length - 1, Math.max(0, Math.round((x[0] + x[1]) / 2)))];
    const [low, high] = [...y].sort((a, b) => a - b);
    const ends = axis.places.length ? levelsIn(axis, low, high) : [numberAt(axis, low), numberAt(axis, high)];
    if (!ends.length) return;
    const rest = [...new URLSearchParams(location.search)].filter(([name, value]) => name !== "brush" || !value.startsWith(`${axis.name}=`));
    const given = ["brush", `${axis.name}=${ends[0]}..${ends[ends.length - 1]}`];
    visit(`${location.pathname}?${new URLSearchParams([...rest, given])}`, false);
  }
  const levelsIn = ({ places }, low, high) =>
    places.filter((_, i) => i / Math.max(places.length - 1, 1) >= low && i / Math.max(places.length - 1, 1) <= high);
  const numberAt = ({ ends, log }, height) => {
    const units = ends[0] + (ends[1] - ends[0]) * Math.min(1, Math.max(0, height));
    return Number((log ? 10 ** units : units).toPrecision(4));
  };

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    ablate: {
      clicked: (data, box, field) => {
        const { triggered, triggered_id } = window.dash_clientside.callback_context;
        if (triggered[0].prop_id.endsWith(".selectedData")) {
          if (box?.range) brush(document.querySelector(`#slot-${triggered_id.slot} .js-plotly-plot`), box.range);
          return window.dash_clientside.no_update;
        }
        const given = data && data.points && data.points[0].customdata;
        const value = Array.isArray(given) ? given[0] : given;
        if (!field || value === undefined || value === null) return window.dash_clientside.no_update;
        const [page, name] = field.split(":");
        if (name) visit(inside(page, [[name, value]]));
        else control(field, [String(value)]);
        return window.dash_clientside.no_update;
      },
      picked: (rows, picks) => {
        const chosen = rows || [];
        const { field, row: key } = (picks || [])[0] || {};
        if (field && rows) control(field, rows.map((row) => row[key]));
        const pinned = new URLSearchParams(location.search).getAll("pin");
        return (picks || [])
          .map((pick) => [pick, [...new Set([...pinned, ...chosen.map((row) => row[pick.column])])].filter(Boolean)])
          .filter(([pick, keys]) => chosen.length && keys.length >= pick.least)
          .map(([pick, keys]) => ({
            type: "A",
            namespace: "dash_html_components",
            props: { children: `${pick.label} (${keys.length})`, href: leading(pick.page, pick.names, keys, field) },
          }));
      },
    },
  });

  const parts = (window.dashAgGridComponentFunctions = window.dashAgGridComponentFunctions || {});
  parts.AblateLink = (props) =>
    props.value === null || props.value === undefined
      ? "–"
      : window.React.createElement(window.React.Fragment, null,
          window.React.createElement("a", { href: leading(props.page, props.names, [props.value]) }, String(props.value)),
          props.under && window.React.createElement("div", { className: "under" }, props.data[props.under]));

  const functions = (window.dashAgGridFunctions = window.dashAgGridFunctions || {});
  functions.ablateSort = ({ source, api }, field) => {
    const sorted = api.getColumnState().filter((column) => column.sort);
    if (source !== "uiColumnSorted" || sorted.length > 1) return; // an address has one column
    control(field, sorted.map(({ sort, colId }) => (sort === "desc" ? `-${colId}` : colId))[0] || null);
  };

  system.addEventListener("change", tell);
  tell();
})();
