"use strict";
// what cells of tables show, and in which order
(() => {
  const parts = (window.dashAgGridComponentFunctions = window.dashAgGridComponentFunctions || {});
  const functions = (window.dashAgGridFunctions = window.dashAgGridFunctions || {});

  // ag-grid is as large as all else together: it is loaded after the first figure, from where Dash would load it
  const MOST_S = 10; // after which it is loaded anyway
  const drawn = () => !document.querySelector("#page .plot") || document.querySelector("#page .plot .main-svg, #page .state");
  let Grid = null, loading = null;
  async function load() {
    for (let waited = 0; !drawn() && waited < MOST_S; waited += 0.05) await new Promise((done) => setTimeout(done, 50));
    const src = `${document.querySelector('script[src*="/dash_ag_grid/dash_ag_grid."]').src}?whole`;
    await new Promise((onload, onerror) => document.head.append(Object.assign(document.createElement("script"), { src, onload, onerror })));
    Grid = window.dash_ag_grid.AgGrid;
    window.dash_ag_grid = { ...window.dash_ag_grid, AgGrid: Object.assign(LateGrid, { dashRenderType: Grid.dashRenderType }) };
  }
  // on a phone, columns have their parts `narrow`, and come by their `place`
  const phone = matchMedia("(max-width: 600px)");
  const fit = (columns) => columns && columns
    .map(({ narrow, place = 99, ...column }) => [place, phone.matches ? { ...column, ...narrow } : column])
    .sort(([one], [other]) => (phone.matches ? one - other : 0))
    .map(([, column]) => column);

  // stays the component that Dash knows, so that no table is mounted anew
  const LateGrid = (props) => {
    const [state, set] = window.React.useState(Grid ? "loaded" : "");
    const draw = window.React.createElement;
    window.React.useEffect(() => {
      if (state !== "loaded") (loading ??= load()).then(() => set("loaded"), () => { loading = null; set("failed"); });
    }, []);
    const columnDefs = window.React.useMemo(() => fit(props.columnDefs), [props.columnDefs]);
    if (state === "loaded") return draw(Grid, { ...props, columnDefs });
    const words = state === "failed" ? "The server did not send the script of tables; load the page again." : null;
    return draw("div", { className: props.className, style: props.style }, words);
  };
  window.dash_ag_grid = { AgGrid: LateGrid };

  // a click opens the text below its first words, as wide as the part of the row in view
  const unfold = ({ currentTarget: details }) => {
    const cell = details.closest(".ag-cell"), view = details.closest(".ag-center-cols-viewport");
    cell.classList.toggle("unfolded", details.open);
    const width = `${view.clientWidth - 24}px`, left = `${view.scrollLeft - cell.offsetLeft}px`;
    Object.assign(details.querySelector("p").style, { width, left });
  };
  parts.AblateFold = (props) => {
    if (!props.value) return "–";
    const draw = window.React.createElement;
    const text = draw("p", null, String(props.value).replace(/ %/g, "\u00a0%"));
    return draw("details", { className: "fold", onToggle: unfold }, draw("summary", null, "Why"), text);
  };

  // an interval, the thin one that decides, and the difference on the axis of the forest plot; the margin is shaded
  parts.AblateInterval = ({ data, value, range: [low, high], rope }) => {
    if (data.low === null || data.high === null) return value ?? "–";
    const draw = window.React.createElement, width = 120;
    const at = (number) => (width * (Math.max(low, Math.min(high, number)) - low)) / (high - low || 1);
    const bar = (className, from, to, y, height) =>
      draw("rect", { className, x: at(from), y, width: Math.max(1, at(to) - at(from)), height });
    const parts = [bar("rope", -rope, rope, 0, 16), bar("zero", 0, 0, 0, 16), bar("bar", data.low, data.high, 6, 4)];
    if (data.corrected_low !== null) parts.push(bar("bar thin", data.corrected_low, data.corrected_high, 7.5, 1));
    const point = draw("circle", { cx: at(data.change), cy: 8, r: 4 });
    const drawn = draw("svg", { className: "interval", width, height: 16, "aria-hidden": true }, ...parts, point);
    return draw("span", { className: "interval" }, drawn, value);
  };

  // a mark per check, whose hidden column has the answer in a sentence
  parts.AblateChecks = ({ data, value, checks }) => {
    if (!value) return "–";
    const draw = window.React.createElement;
    return draw("span", { className: "checks" }, checks.map((name, at) =>
      draw("abbr", { key: name, title: `${name}: ${data[name]}`, "data-mark": value[at] }, value[at])));
  };

  // '−23 %', '× 4.2' and '< 0.001' by what they mean; an interval by its beginning, what is none last
  const size = (text) => {
    const [number] = String(text ?? "").replace(/\u2212/g, "-").match(/-?[\d.]+/) || [];
    if (number === undefined) return Infinity;
    const value = Number(number);
    if (text.startsWith("×")) return 100 * (value - 1);
    return text.startsWith("÷") ? 100 * (1 / value - 1) : text.startsWith("<") ? 0 : value;
  };

  // a number with 17 digits as one reads it; files have all. With four digits it is a result, as in other tables
  functions.ablateShort = (text, digits) => {
    if (!/^-?\d+(\.\d+)?(e[-+]?\d+)?$/.test(text)) return text;
    const long = digits === 4 ? /\.\d{4,}/ : /\.\d{6,}/;
    const short = long.test(text) ? String(Number(Number(text).toPrecision(digits))) : text;
    if (digits === 4 && /^-?\d{4,}$/.test(short)) return Number(short).toLocaleString("en").replace(/^-/, "\u2212");
    return short.replace(/^-/, "\u2212");
  };
  // in the order that the server sorts: what has no value is last in either direction
  functions.ablateRows = (one, other, a, b, down) => {
    if (one === null || other === null) return one === other ? 0 : (one === null) === down ? -1 : 1;
    return one === other ? 0 : one < other ? -1 : 1;
  };
  functions.ablateOrder = (one, other) => (size(one) === size(other) ? 0 : size(one) - size(other));

  // a tall table has only the rows in view; paper takes all, and does not wait for React
  for (const [event, layout] of [["beforeprint", "print"], ["afterprint", "normal"]])
    window.addEventListener(event, () => {
      const tables = [...document.querySelectorAll("#page .ag-theme-quartz")].flatMap(({ id }) => {
        try { return [window.dash_ag_grid.getApi(id)]; } catch { return []; } // not ready yet
      });
      const tall = tables.filter((table) => table.getGridOption("domLayout") !== "autoHeight");
      window.ReactDOM.flushSync(() => tall.forEach((table) => table.setGridOption("domLayout", layout)));
    });
})();
