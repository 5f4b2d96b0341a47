"use strict";

// A single document, so that no page has to load: #/SITE/SCREEN/WHICH selects the screen.
const phone = {
  state: { cart: {}, orders: [], opened: [], settings: { ...WORLD.settings } },
  sites: {},
  clicks: 0,
  activity: "",
};

const positions = new Map();
let entry = null;

/** Creates a node. Strings become text nodes, never markup; `on…` properties are listeners, others attributes. */
function make(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

/** Creates a drawing; `inside` is markup of these pages, never typed text. */
function draw(inside, box = "0 0 24 24") {
  const holder = document.createElement("div");
  holder.innerHTML = `<svg viewBox="${box}" aria-hidden="true">${inside}</svg>`;
  return holder.firstChild;
}

const ARROW = '<path d="M20 12H5M11 5l-7 7 7 7"/>';

/** Creates the bar at the top; its arrow acts like the phone's back button. */
function bar(title, ...right) {
  const back = make("button", { "aria-label": "Navigate up", onclick: () => phone.back() }, draw(ARROW));
  return make("header", {}, back, make("h1", {}, title), ...right);
}

phone.go = (route) => { location.hash = route; };
phone.home = () => phone.go("#/");
phone.back = () => {
  if (phone.activity !== "launcher/home" && navigation.canGoBack) history.back();
};

/** Redraws the screen of the address and keeps the scroll position. */
phone.show = () => {
  const [, site, screen, which] = location.hash.split("/");
  const shown = phone.sites[site || "launcher"](screen || "", decodeURIComponent(which || ""));
  phone.activity = shown.activity;
  document.body.className = shown.look || "";
  document.body.replaceChildren(...shown.nodes);
};

function moved() {
  positions.set(entry, scrollY);
  entry = navigation.currentEntry.key;
  phone.show();
  scrollTo(0, positions.get(entry) || 0);
}

addEventListener("click", () => { phone.clicks += 1; }, true);
addEventListener("contextmenu", (event) => event.preventDefault());
addEventListener("hashchange", moved);
addEventListener("DOMContentLoaded", () => {
  history.scrollRestoration = "manual";
  entry = navigation.currentEntry.key;
  phone.show();
});

/** Resolves when three frames in a row are equal, after `clicks` clicks or half a second without one. */
phone.settled = (clicks) => new Promise((done) => {
  let alike = 0, before = null, frames = 0;
  const look = () => {
    frames += 1;
    if (phone.clicks < clicks && frames < 30) return requestAnimationFrame(look);
    const now = [location.hash, phone.activity, scrollX, scrollY].join();
    alike = now === before ? alike + 1 : 0;
    before = now;
    return alike < 3 ? requestAnimationFrame(look) : document.fonts.ready.then(done);
  };
  setTimeout(look);
});

/** Whether the box lies outside the window or under the fixed bar at the top. */
function hidden(node, box) {
  const bar = document.querySelector("header");
  const under = bar && !bar.contains(node) ? bar.offsetHeight : 0;
  return !box.width || !box.height || box.bottom <= under || box.top >= innerHeight || box.right <= 0 || box.left >= innerWidth;
}

/** [text, left, top, right, bottom] of every visible text, in CSS pixels and in document order. */
phone.texts = () => {
  const found = [];
  const add = (node, text, box) => {
    if (text.trim() && !hidden(node, box)) found.push([text.trim(), box.left, box.top, box.right, box.bottom]);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (node.nodeType === Node.TEXT_NODE) {
      const range = document.createRange();
      range.selectNodeContents(node);
      add(node, node.data, range.getBoundingClientRect());
    } else if (node.tagName === "INPUT") {
      add(node, node.value || node.placeholder, node.getBoundingClientRect());
    } else if (node.ariaLabel) {
      add(node, node.ariaLabel, node.getBoundingClientRect());
    }
  }
  return found;
};

const WIDGETS = [
  ["header svg, .line button, .chips button, .button", "button"],
  ["input", "edit_text"],
  [".switch", "switch"],
  [".dot", "radio_group"],
  [".badge, .home svg, .card svg > rect, .line svg > rect", "image"],
];

/** The box of a node; of a drawn line icon, that of its lines. */
function ink(node) {
  if (!node.matches("header svg")) return node.getBoundingClientRect();
  const boxes = [...node.children].map((line) => line.getBoundingClientRect());
  const left = Math.min(...boxes.map((box) => box.left)) - 1, right = Math.max(...boxes.map((box) => box.right)) + 1;
  const top = Math.min(...boxes.map((box) => box.top)) - 1, bottom = Math.max(...boxes.map((box) => box.bottom)) + 1;
  return new DOMRect(left, top, right - left, bottom - top);
}

/** [kind, on or null, left, top, right, bottom] of every widget of which at least 70 % is visible, in CSS pixels. */
phone.widgets = () => WIDGETS.flatMap(([selector, kind]) => [...document.querySelectorAll(selector)].flatMap((node) => {
  const box = ink(node);
  const bar = document.querySelector("header");
  const low = bar && !bar.contains(node) ? bar.offsetHeight : 0;
  const left = Math.max(box.left, 0), right = Math.min(box.right, innerWidth);
  const top = Math.max(box.top, low), bottom = Math.min(box.bottom, innerHeight);
  const shown = box.width && box.height && right - left >= 0.7 * box.width && bottom - top >= 0.7 * box.height;
  const on = kind === "switch" || kind === "radio_group" ? node.parentNode.classList.contains("on") : null;
  return shown ? [[kind, on, left, top, right, bottom]] : [];
}));
