// What is wrong with the page: inputs without a label, names that are missing, contrast below WCAG AA.
() => {
  const wrong = [];
  const isShown = (el) => el.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  for (const el of document.querySelectorAll("input:not([type=hidden]), select, textarea")) {
    if (!el.labels?.length && !el.getAttribute("aria-label")) wrong.push(`no label: ${el.outerHTML.slice(0, 120)}`);
  }
  for (const el of document.querySelectorAll("a, button, summary")) {
    if (!el.textContent.trim() && !el.getAttribute("aria-label")) wrong.push(`no name: ${el.outerHTML.slice(0, 120)}`);
  }
  const ids = [...document.querySelectorAll("[id]")].map((el) => el.id);
  for (const id of ids.filter((id, at) => ids.indexOf(id) !== at)) wrong.push(`id twice: ${id}`);
  if (document.querySelectorAll("h1").length !== 1) wrong.push("not one h1");
  const parse = (text) => {
    const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number);
    return { r, g, b, a };
  };
  const luminance = ({ r, g, b }) => {
    const part = (v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const behind = (el) => {
    for (let at = el; at; at = at.parentElement) {
      const found = parse(getComputedStyle(at).backgroundColor);
      if (found.a === 1) return found;
    }
    return parse("rgb(255, 255, 255)");
  };
  for (const el of document.body.querySelectorAll("*")) {
    const hasText = [...el.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!hasText || el.closest("dialog:not([open]), .skip") || !isShown(el)) continue;
    const style = getComputedStyle(el);
    const isSvg = el instanceof SVGElement;
    const ink = parse(isSvg ? style.fill : style.color);
    const [high, low] = [luminance(ink), luminance(behind(el))].sort((a, b) => b - a);
    const ratio = (high + 0.05) / (low + 0.05);
    const size = parseFloat(style.fontSize);
    const least = size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5;
    if (ratio < least) wrong.push(`contrast ${ratio.toFixed(2)}: ${el.tagName} ${el.className} ${el.textContent.trim().slice(0, 40)}`);
  }
  if (document.documentElement.scrollWidth > innerWidth) wrong.push(`wider than the window: ${document.documentElement.scrollWidth}`);
  return wrong;
}
