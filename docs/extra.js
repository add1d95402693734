// What the theme makes in the browser gets names and a place for the keyboard.
const named = () => {
  document.querySelectorAll(".md-code__nav").forEach((nav, number) => nav.setAttribute("aria-label", `Code ${number + 1}`));
  document.querySelectorAll(".md-typeset__scrollwrap, .output").forEach((box) => box.setAttribute("tabindex", "0"));
  document.querySelectorAll("th").forEach((head) => head.querySelector("math") && head.setAttribute("aria-label", head.textContent));
};
document.addEventListener("DOMContentLoaded", () => { named(); setTimeout(named, 200); });
