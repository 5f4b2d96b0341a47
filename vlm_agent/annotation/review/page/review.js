"use strict";
// Saves texts, and keys: the element with data-key KEY is pressed by that key.
{
  const byId = (id) => document.getElementById(id);
  const areas = [...document.querySelectorAll("textarea")];
  const token = document.querySelector("meta[name=token]").content;
  const message = byId("message");
  let stored = areas.map((area) => area.value);
  let accepted = !byId("withdraw").hidden;
  let saving = Promise.resolve(true);

  const isChanged = () => areas.some((area, number) => area.value !== stored[number]);

  const show = (text, failed = false) => {
    message.textContent = text;
    message.classList.toggle("failed", failed);
  };

  // Resolves to whether the step is on disk.
  const store = async (accept) => {
    show("Saving …");
    // Only what changed here: another tab may have saved the others.
    const sent = areas.map((area) => area.value);
    const changed = areas.filter((area, number) => area.value !== stored[number]);
    const texts = Object.fromEntries(changed.map((area) => [area.name, area.value]));
    let reply;
    try {
      const response = await fetch(location.pathname, {
        method: "POST",
        headers: { "Content-Type": "application/json", "X-Page-Token": token },
        body: JSON.stringify({ texts, accepted: accept }),
      });
      if (!response.ok) {
        show(`Not saved: ${(await response.text()).trim()}`, true);
        return false;
      }
      reply = await response.json();
    } catch {
      show("Not saved: the review has ended. Keep this page open, and start the review again.", true);
      return false;
    }
    // What was typed meanwhile stays, and counts as changed.
    stored = areas.map((area, number) => {
      if (area.value === sent[number]) area.value = reply.texts[area.name];
      return reply.texts[area.name];
    });
    accepted = reply.accepted;
    for (const area of areas) byId(`state-${area.name}`).textContent = reply.states[area.name];
    byId("problem").textContent = reply.problem ?? "";
    byId("accept-words").textContent = accepted ? "Accepted ✓" : "Accept";
    byId("withdraw").hidden = !accepted;
    show("Saved");
    return true;
  };
  const save = (accept) => (saving = saving.then(() => store(accept)));

  const leave = async (url) => {
    if (!isChanged() || (await save(accepted))) location.assign(url);
  };
  const accept = async () => {
    if (await save(true)) location.assign(byId("next")?.href ?? "/");
  };

  byId("texts").addEventListener("submit", (event) => {
    event.preventDefault();
    accept();
  });
  byId("save").addEventListener("click", () => save(accepted));
  byId("withdraw").addEventListener("click", () => save(false));
  byId("boxes").addEventListener("click", () => {
    const picture = byId("picture");
    const plain = picture.src.split("?")[0];
    picture.src = picture.src === plain ? `${plain}?boxes` : plain;
  });
  for (const link of document.querySelectorAll("a")) {
    link.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
      event.preventDefault();
      leave(link.href);
    });
  }
  for (const area of areas) {
    area.addEventListener("input", () => show(isChanged() ? "Not saved yet" : ""));
  }

  const arrows = { ArrowLeft: "p", ArrowRight: "n" };
  addEventListener("keydown", (event) => {
    const isText = event.target instanceof HTMLTextAreaElement;
    if (isText && event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      accept();
      return;
    }
    if (isText && event.key === "Escape") {
      event.preventDefault();
      event.target.blur();
      return;
    }
    if (isText || event.ctrlKey || event.metaKey || event.altKey) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : (arrows[event.key] ?? event.key);
    const area = areas[key === "e" ? 0 : "1234".indexOf(key)];
    const pressed = area ?? document.querySelector(`[data-key="${CSS.escape(key)}"]`);
    if (!pressed) return;
    event.preventDefault();
    if (area) area.focus();
    else pressed.click();
  });
  addEventListener("beforeunload", (event) => {
    if (isChanged()) event.preventDefault();
  });
}
