"use strict";

const edits = {};

function toggle({ key, label, about }) {
  const flip = () => { phone.state.settings[key] = !phone.state.settings[key]; phone.show(); };
  return make("button", { class: phone.state.settings[key] ? "row on" : "row", onclick: flip },
    make("span", {}, label, ...(about ? [make("small", {}, about)] : [])), make("span", { class: "switch" }));
}

function choice({ key, label, options }) {
  const option = (name) => make("button", {
    class: phone.state.settings[key] === name ? "row on" : "row",
    onclick: () => { phone.state.settings[key] = name; phone.show(); },
  }, make("span", {}, name), make("span", { class: "dot" }));
  return make("section", {}, make("h2", {}, label), ...options.map(option));
}

function text({ key, label }) {
  const field = make("input", {
    class: "field", placeholder: label, value: edits[key] ?? phone.state.settings[key],
    oninput: () => { edits[key] = field.value; },
  });
  const empty = () => { edits[key] = ""; phone.show(); document.querySelector(`[placeholder="${label}"]`).focus(); };
  const save = () => { phone.state.settings[key] = field.value.trim(); delete edits[key]; phone.show(); };
  return make("section", {}, make("h2", {}, label), field,
    make("button", { class: "button", onclick: empty }, "Clear"), make("button", { class: "button", onclick: save }, "Save"));
}

const ROWS = { toggle, choice, text };

function page({ id, title, about, colour }) {
  return make("a", { class: "row", href: `#/settings/${id}` },
    make("span", { class: "badge", style: `background:${colour};flex:none`, "aria-hidden": "true" }),
    make("span", { style: "flex:1" }, title, make("small", {}, about)));
}

function overview() {
  const help = make("footer", {}, make("a", { href: WORLD.elsewhere }, "Help centre"));
  return [bar("Settings"), make("main", {}, ...WORLD.pages.map(page), help)];
}

function subPage(id) {
  const { title, rows } = WORLD.pages.find((item) => item.id === id);
  return [bar(title), make("main", {}, ...rows.map((row) => ROWS[row.kind](row)))];
}

phone.sites.settings = (id) => ({
  activity: `settings/${id || "overview"}`,
  look: phone.state.settings.dark ? "dark" : "",
  nodes: id ? subPage(id) : overview(),
});
