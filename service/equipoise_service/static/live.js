// Live progress of one running comparison. EventSource comes back by itself and sends Last-Event-ID.
"use strict";
const live = document.getElementById("live");
const text = document.getElementById("progress");
const bar = document.getElementById("bar");
const source = new EventSource(live.dataset.events);
const ended = ["succeeded", "failed", "cancelled", "interrupted"];
let reload;  // a comparison that was resumed has ended before: only an end that nothing follows counts

source.addEventListener("progress", (event) => {
  const progress = JSON.parse(event.data);
  text.textContent = `running: ${progress.stage}, ${progress.done} of ${progress.total} ${progress.detail}`;
  if (progress.total > 0) {
    bar.max = progress.total;
    bar.value = progress.done;
  }
});

source.addEventListener("status", (event) => {
  const status = JSON.parse(event.data).status;
  text.textContent = status;
  clearTimeout(reload);
  if (ended.includes(status)) {
    reload = setTimeout(() => {
      source.close();
      location.reload();
    }, 500);
  }
});
