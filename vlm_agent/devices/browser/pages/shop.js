"use strict";

const GLASS = '<circle cx="10" cy="10" r="6"/><path d="M15 15l6 6"/>';
const CART = '<path d="M2 3h3l3 12h11l2-9H6"/><circle cx="9" cy="20" r="1"/><circle cx="18" cy="20" r="1"/>';
const SHAPES = {
  mug: '<rect x="28" y="30" width="40" height="44" rx="6"/><path d="M68 38h8q8 0 8 12t-8 12h-8" fill="none" stroke-width="6"/>',
  lamp: '<path d="M34 20h32l14 30H20z"/><rect x="47" y="50" width="6" height="28"/><rect x="32" y="78" width="36" height="6" rx="3"/>',
  chair: '<rect x="32" y="14" width="36" height="34" rx="5"/><rect x="28" y="50" width="44" height="10" rx="3"/><path d="M32 60v26M68 60v26" stroke-width="6"/>',
  backpack: '<rect x="28" y="26" width="44" height="58" rx="14"/><path d="M40 26v-6a10 10 0 0 1 20 0v6" fill="none" stroke-width="5"/><rect x="36" y="56" width="28" height="18" rx="4" fill="#fff6"/>',
  clock: '<circle cx="50" cy="50" r="34"/><circle cx="50" cy="50" r="27" fill="#fff"/><path d="M50 32v18l12 8" fill="none" stroke-width="4"/>',
  kettle: '<path d="M32 34h36l8 48H24z"/><path d="M36 34q14-24 28 0" fill="none" stroke-width="5"/><path d="M72 50l14-12" stroke-width="7"/>',
  cushion: '<path d="M20 22q30 10 60 0-10 28 0 56-30-10-60 0 10-28 0-56z"/>',
  vase: '<path d="M40 14h20l-4 18q20 16 12 40-3 14-18 14T32 72q-8-24 12-40z"/>',
};
const drafts = { query: "", kind: "", name: "", delivery: "Standard", note: "" };

const product = (id) => WORLD.products.find((item) => item.id === id);
const money = (cents) => `${WORLD.currency}${Math.floor(cents / 100)}.${String(cents % 100).padStart(2, "0")}`;
const cartEntries = () => Object.entries(phone.state.cart);
const total = (items) => items.reduce((sum, [id, count]) => sum + count * product(id).price, 0);

function picture({ kind, tint }) {
  return draw(`<rect width="100" height="100" rx="8" fill="${tint}22"/><g fill="${tint}" stroke="${tint}">${SHAPES[kind]}</g>`, "0 0 100 100");
}

function shopBar(title) {
  const count = cartEntries().reduce((sum, [, number]) => sum + number, 0);
  const badge = count ? [make("span", { class: "count" }, String(count))] : [];
  return bar(title,
    make("a", { href: "#/shop/search", "aria-label": "Search" }, draw(GLASS)),
    make("a", { href: "#/shop/cart", "aria-label": "Cart" }, draw(CART), ...badge));
}

function card(item) {
  return make("a", { class: "card", href: `#/shop/product/${item.id}` }, picture(item),
    make("div", {}, item.name), make("div", { class: "price" }, money(item.price)),
    make("div", { class: "stars" }, `★ ${item.rating}`));
}

function list() {
  const kinds = ["", ...Object.keys(SHAPES)];
  const chip = (kind) => make("button", {
    class: kind === drafts.kind ? "on" : "", onclick: () => { drafts.kind = kind; phone.show(); },
  }, kind ? WORLD.plurals[kind] : "All");
  const items = WORLD.products.filter(({ kind }) => !drafts.kind || kind === drafts.kind);
  return [shopBar("Little Shop"), make("main", {},
    make("div", { class: "chips" }, ...kinds.map(chip)),
    make("div", { class: "grid" }, ...items.map(card)),
    make("footer", {}, make("a", { href: WORLD.elsewhere }, "Follow us")))];
}

function search() {
  const field = make("input", { class: "field", placeholder: "Search products", value: drafts.query, oninput: () => { drafts.query = field.value; } });
  const form = make("form", { onsubmit: (event) => { event.preventDefault(); phone.go(`#/shop/results/${encodeURIComponent(drafts.query)}`); } }, field);
  return [shopBar("Search"), make("main", {}, form, make("p", { class: "faint" }, "Type what you are looking for and press enter."))];
}

function results(query) {
  const words = query.toLocaleLowerCase().split(/\s+/u);
  const items = WORLD.products.filter(({ name }) => words.every((word) => name.toLocaleLowerCase().includes(word)));
  return [shopBar("Results"), make("main", {}, make("p", { class: "faint" }, `${items.length} results for “${query}”`),
    make("div", { class: "grid" }, ...items.map(card)))];
}

function productPage(id) {
  const item = product(id);
  const { cart, opened } = phone.state;
  if (opened.at(-1) !== id) opened.push(id);
  const add = () => { cart[id] = (cart[id] || 0) + 1; phone.show(); };
  return [shopBar(item.name), make("main", {},
    make("div", { class: "card large" }, picture(item), make("div", { class: "price" }, money(item.price)),
      make("div", { class: "stars" }, `★ ${item.rating}`)),
    make("button", { class: "button", onclick: add }, "Add to cart"),
    make("p", {}, item.words),
    make("p", { class: "faint" }, cart[id] ? `In your cart: ${cart[id]}` : "Not in your cart yet"))];
}

function cartPage() {
  const { cart } = phone.state;
  const change = (id, by) => () => {
    cart[id] += by;
    if (!cart[id]) delete cart[id];
    phone.show();
  };
  const line = ([id, count]) => make("div", { class: "line" }, picture(product(id)),
    make("div", {}, product(id).name, make("div", { class: "price" }, money(product(id).price))),
    make("button", { "aria-label": `One ${product(id).name} less`, onclick: change(id, -1) }, "−"),
    make("b", {}, String(count)),
    make("button", { "aria-label": `One ${product(id).name} more`, onclick: change(id, 1) }, "+"));
  const below = cartEntries().length
    ? [make("div", { class: "sum" }, make("span", {}, "Total"), make("span", {}, money(total(cartEntries())))),
      make("a", { class: "button", href: "#/shop/checkout" }, "Checkout")]
    : [make("p", {}, "Your cart is empty.")];
  return [bar("Cart"), make("main", {}, ...cartEntries().map(line), ...below)];
}

function checkout() {
  if (!cartEntries().length) return cartPage();
  const field = make("input", { class: "field", placeholder: "Full name", value: drafts.name, oninput: () => { drafts.name = field.value; } });
  const way = (name) => make("button", {
    class: name === drafts.delivery ? "row on" : "row", onclick: () => { drafts.delivery = name; phone.show(); },
  }, make("span", {}, name), make("span", { class: "dot" }));
  const order = () => {
    const name = drafts.name.trim();
    drafts.note = name ? "" : "Please enter a name.";
    if (!name) return phone.show();
    phone.state.orders.push({ items: { ...phone.state.cart }, name, delivery: drafts.delivery });
    phone.state.cart = {};
    return phone.go("#/shop/thanks");
  };
  return [bar("Checkout"), make("main", {}, make("h2", {}, "Deliver to"), field, ...(drafts.note ? [make("p", { class: "note" }, drafts.note)] : []),
    make("h2", {}, "Delivery"), way("Standard"), way("Express"),
    make("div", { class: "sum" }, make("span", {}, "Total"), make("span", {}, money(total(cartEntries())))),
    make("button", { class: "button", onclick: order }, "Place order"))];
}

function thanks() {
  return [bar("Order placed"), make("main", {}, make("h2", {}, "Thank you!"), make("p", {}, "Your order is on its way."),
    make("a", { class: "button", href: "#/shop" }, "Continue shopping"))];
}

const SCREENS = { "": list, search, results, product: productPage, cart: cartPage, checkout, thanks };

phone.sites.shop = (screen, which) => ({
  activity: `shop/${screen || "list"}`,
  nodes: SCREENS[screen](which),
});
