"""How legible a page in a browser is: a script for its every text."""

# Colours as the browser computed them, against the nearest background that is not transparent.
CONTRASTS = """() => {
  const parse = (color) => (color.match(/[\\d.]+/g) || []).map(Number);
  const luminance = (rgb) => {
    const linear = (v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    const [r, g, b] = rgb.slice(0, 3).map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const background = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = parse(getComputedStyle(at).backgroundColor);
      if (color.length === 3 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  const found = [];
  const wanted = "p, td, th, caption, summary, h1, h2, h3, h4, dt, dd, button, label, .verdict, .plot text, " +
    "#top a, .files a, .ag-cell, .ag-header-cell-text";
  for (const element of document.querySelectorAll(wanted)) {
    if (element.closest(".textpoint")) continue;  // stands on what is drawn, not on the page
    if (!element.textContent.trim() || !element.getClientRects().length) continue;
    const style = getComputedStyle(element);
    const color = parse(element instanceof SVGElement ? style.fill : style.color);
    const [low, high] = [luminance(color), luminance(background(element))].sort((a, b) => a - b);
    found.push([(high + 0.05) / (low + 0.05), element.tagName + " " + element.textContent.trim().slice(0, 40)]);
  }
  return found.sort((a, b) => a[0] - b[0]);
}"""
