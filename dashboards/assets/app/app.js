"use strict";
(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const theme = () => localStorage.getItem("ablate-theme") || (system.matches ? "dark" : "light");

  // figures are drawn on the server, which has to know the theme
  function tell() {
    const chosen = localStorage.getItem("ablate-theme");
    if (chosen) root.dataset.theme = chosen;
    else delete root.dataset.theme;
    const ready = window.dash_clientside && window.dash_clientside.set_props && document.getElementById("page");
    if (ready) window.dash_clientside.set_props("theme", { data: theme() });
    else setTimeout(tell, 20);
  }

  function swap() {
    localStorage.setItem("ablate-theme", theme() === "dark" ? "light" : "dark");
    tell();
  }

  // at once here; the server then writes it into the address and draws it so from now on
  function toggle(button) {
    const shown = button.getAttribute("aria-pressed") === "true";
    button.setAttribute("aria-pressed", String(!shown));
    const plot = button.closest(".slot").querySelector(".js-plotly-plot");
    const places = plot.data.map((_, i) => i).filter((i) => plot.data[i].legendgroup === button.dataset.key);
    if (places.length) window.Plotly.restyle(plot, { visible: !shown }, places);
    const off = [...document.querySelectorAll('.key[aria-pressed="false"]')].map((key) => key.textContent);
    window.dash_clientside.set_props({ type: "control", field: "hide" }, { value: [...new Set(off)] });
  }

  async function load(details) {
    const place = details.querySelector("[data-source]");
    if (!place || !details.open) return;
    place.textContent = "Loading …";
    try {
      const answer = await fetch(place.dataset.source);
      const text = await answer.text();
      if (answer.ok) place.innerHTML = text; // escaped where it is made
      else place.textContent = text;
    } catch {
      place.textContent = "The server does not answer.";
    }
  }

  document.addEventListener("toggle", (event) => event.target.tagName === "DETAILS" && load(event.target), true);
  document.addEventListener("click", (event) => {
    const key = event.target.closest(".legend button");
    if (key) toggle(key);
    if (event.target.closest("#switch")) swap();
  });

  let before = "";
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
    if (before === "g") {
      const link = [...document.querySelectorAll("#top .pages a")].find((each) => each.title.endsWith(`(g ${event.key})`));
      if (link) link.click();
    } else if (event.key === "t") swap();
    before = event.key;
  });
  system.addEventListener("change", tell);
  tell();
})();
