// Shows the messages of one person. States and arrivals come from the event stream; the texts are
// read when one arrives. Nothing here asks a worker.
const api = "holdfast/v1/rewrites";
const lines = new Map();

function show(list, id, text) {
  if (!lines.has(list + id)) {
    const line = document.createElement("li");
    document.querySelector(list).prepend(line);
    lines.set(list + id, line);
  }
  lines.get(list + id).textContent = text;
}

async function read(path, user) {
  const answer = await fetch(`${api}/${path}?user_id=${user}`);
  return (await answer.json()).items;
}

async function showReceived(user) {
  for (const item of (await read("received", user)).reverse()) {
    show("#received", item.rewrite_request_id, item.rewritten_text);
  }
}

async function start() {
  const me = await (await fetch("me")).json();
  document.querySelector("#name").textContent = `Messages of ${me.name}`;
  const stream = new EventSource(`${api}/events?user_id=${me.user_id}`);
  stream.addEventListener("rewrite", (event) => {
    const change = JSON.parse(event.data);
    if (change.role === "received") showReceived(me.user_id);
    else show("#sent", change.rewrite_request_id, change.has_failed ? "not delivered" : change.status);
  });
  // After the stream is open, so that nothing falls between the two.
  stream.onopen = async () => {
    for (const item of (await read("sent", me.user_id)).reverse()) {
      show("#sent", item.rewrite_request_id, item.has_failed ? "not delivered" : item.status);
    }
    await showReceived(me.user_id);
  };
  document.querySelector("#message").addEventListener("submit", async (event) => {
    event.preventDefault();
    const field = document.querySelector("#text");
    await fetch("messages", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ text: field.value }),
    });
    field.value = "";
  });
}

start();
