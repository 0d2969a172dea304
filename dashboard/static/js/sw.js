// Takes pushes while no page is open: shows the sentence, and opens what it is about.
"use strict";

self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

self.addEventListener("push", (event) => {
  let told = { title: "Opatlas", body: "Something happened.", url: "/notifications/", tag: "opatlas" };
  try {
    told = { ...told, ...event.data.json() };
  } catch {
    // Shown all the same: browsers punish a push that shows nothing.
  }
  event.waitUntil(
    self.registration.showNotification(told.title, { body: told.body, tag: told.tag, data: { url: told.url } }),
  );
});

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  const wanted = new URL(event.notification.data.url, self.location.origin);
  // Only ever our own pages, whatever a message says.
  const url = wanted.origin === self.location.origin ? wanted.href : `${self.location.origin}/notifications/`;
  event.waitUntil(self.clients.openWindow(url));
});
