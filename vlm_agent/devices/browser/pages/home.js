"use strict";

const APPS = [
  ["Shop", "#/shop", "#1a5fd0", '<path d="M18 24h24l3 22H15zM23 24v-4a7 7 0 0 1 14 0v4" fill="none" stroke="#fff" stroke-width="3"/>'],
  ["Settings", "#/settings", "#5b6270", '<circle cx="30" cy="30" r="10" fill="none" stroke="#fff" stroke-width="6" stroke-dasharray="5 3"/>'],
];

phone.sites.launcher = () => ({
  activity: "launcher/home",
  look: "home",
  nodes: [
    make("main", {}, ...APPS.map(([name, route, colour, inside]) =>
      make("a", { href: route }, draw(`<circle cx="30" cy="30" r="30" fill="${colour}"/>${inside}`, "0 0 60 60"), name))),
  ],
});
