// Asks this browser for Web Push and tells the service where it can be reached. Pages work without it.
"use strict";

{
  const box = document.getElementById("push");
  const supported = "serviceWorker" in navigator && "PushManager" in window && "Notification" in window;

  const say = (text) => {
    box.querySelector("[role=status]").textContent = text;
  };

  // The key arrives as base64url; the browser wants its bytes.
  const bytes = (text) => {
    const plain = atob(text.replace(/-/g, "+").replace(/_/g, "/"));
    return Uint8Array.from(plain, (character) => character.charCodeAt(0));
  };

  const allow = async (button) => {
    if ((await Notification.requestPermission()) !== "granted") {
      say("The browser does not allow messages from this site: its settings for the site can change that.");
      return;
    }
    const worker = await navigator.serviceWorker.register(box.dataset.worker, { scope: "/" });
    await navigator.serviceWorker.ready;
    const key = bytes(box.dataset.key);
    const made = await worker.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key });
    const { endpoint, keys } = made.toJSON();
    const form = new FormData(button.form);
    for (const [name, value] of Object.entries({ endpoint, ...keys })) form.set(name, value);
    const answer = await fetch(button.form.action, { method: "POST", body: form });
    const said = await answer.json();
    if (!answer.ok) {
      say(said.error);
      return;
    }
    window.location.reload();
  };

  if (box && supported) {
    box.querySelector("form").hidden = false;
    box.querySelector("form").addEventListener("submit", (event) => {
      event.preventDefault();
      const button = event.target.querySelector("button");
      button.disabled = true;
      allow(button)
        .catch((error) => say(`This browser could not be subscribed: ${error.message}`))
        .finally(() => {
          button.disabled = false;
        });
    });
  } else if (box) {
    say("This browser takes no Web Push.");
  }
}
