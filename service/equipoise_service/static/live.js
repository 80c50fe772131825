// Live progress of one running comparison. EventSource comes back by itself and sends Last-Event-ID.
"use strict";
const live = document.getElementById("live");
const text = document.getElementById("progress");
const bar = document.getElementById("bar");
const source = new EventSource(live.dataset.events);
const ended = ["succeeded", "failed", "cancelled", "interrupted"];
let reload;  // a comparison that was resumed has ended before: only an end that nothing follows counts
let fetching;  // looks that come together are shown once

source.addEventListener("progress", (event) => {
  const progress = JSON.parse(event.data);
  text.textContent = `running: ${progress.stage}, ${progress.done} of ${progress.total} ${progress.detail}`;
  if (progress.total > 0) {
    bar.max = progress.total;
    bar.value = progress.done;
  }
});

// The intervals so far are drawn by the service, as everything else is.
source.addEventListener("look", () => {
  clearTimeout(fetching);
  fetching = setTimeout(() => {
    // Offline, the next look or the end shows what this one would have.
    redraw().catch((error) => console.info(`not redrawn: ${error.message}`));
  }, 200);
});

async function redraw() {
  const answer = await fetch(location.href, {headers: {Accept: "text/html"}});
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("looks");
  if (fresh) {
    document.getElementById("looks").replaceWith(fresh);
  }
}

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
