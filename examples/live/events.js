// Follows the changes of jobs. The browser reconnects by itself and sends the id of the last event
// as Last-Event-ID, so no change is missed and none is shown twice.
const connection = document.querySelector("#connection");
const stream = new EventSource("holdfast/v1/events?subject=jobs");

stream.onopen = () => { connection.textContent = "Connected"; };
stream.onerror = () => { connection.textContent = "Reconnecting…"; };
stream.addEventListener("change", (event) => {
  const change = JSON.parse(event.data);
  const line = document.createElement("li");
  line.textContent = `${change.at} ${change.subject} ${change.state ?? change.name}`;
  document.querySelector("#events").prepend(line);
});
stream.addEventListener("end", (event) => {
  // The login is no longer valid: a new connection would be refused.
  if (JSON.parse(event.data).reason === "access_ended") stream.close();
});

document.querySelector("#order").addEventListener("submit", async (event) => {
  event.preventDefault();
  await fetch("orders", { method: "POST" });
});
