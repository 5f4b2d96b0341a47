"use strict";

const find = (id) => document.getElementById(id);
let picture = null;

function choose(file) {
  if (!file) return;
  picture = file;
  find("file").textContent = file.name;
}

function row(name, text) {
  const term = document.createElement("dt");
  const value = document.createElement("dd");
  term.textContent = name;
  value.textContent = text;
  find("texts").append(term, value);
}

function show(reply) {
  find("texts").replaceChildren();
  row("action", reply.action);
  row("answer", reply.answer);
  for (const [name, text] of Object.entries(reply.notes)) row(name === "think" ? "thought" : name, text);
  row("seconds", String(reply.seconds));
  if (reply.from_disk) row("reply", "from disk; seconds and tokens are those of the request that was sent");
  row("tokens", reply.tokens ? `${reply.tokens[0]} read, ${reply.tokens[1]} written` : "unknown");
  find("drawn").src = reply.picture;
  find("result").hidden = false;
}

async function ask() {
  const message = find("message");
  find("result").hidden = true;
  if (!picture) {
    message.textContent = "Choose a picture.";
    return;
  }
  message.textContent = "Waiting for the agent …";
  find("send").disabled = true;
  try {
    const reply = await fetch(`/ask?goal=${encodeURIComponent(find("goal").value)}`, {
      method: "POST",
      headers: { "Content-Type": "application/octet-stream", "X-Page-Token": document.body.dataset.token },
      body: picture,
    });
    if (reply.ok) show(await reply.json());
    message.textContent = reply.ok ? "" : (await reply.text()).trim();
  } catch (error) {
    message.textContent = `The server does not answer: ${error.message}`;
  } finally {
    find("send").disabled = false;
  }
}

if (find("drop")) {
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    choose(event.dataTransfer.files[0]);
  });
  find("picture").addEventListener("change", (event) => choose(event.target.files[0]));
  find("send").addEventListener("click", ask);
  find("goal").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !find("send").disabled) ask();
  });
}
