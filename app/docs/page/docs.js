// Starts Swagger UI over this server's own document. No validator is asked: nothing leaves for the network.
"use strict";

const dark = matchMedia("(prefers-color-scheme: dark)");

function follow() {
  const chosen = localStorage.getItem("sluice-theme") ?? "system";
  const isDark = chosen === "dark" || (chosen === "system" && dark.matches);
  document.documentElement.classList.toggle("dark-mode", isDark);
}

follow();
dark.addEventListener("change", follow);

SwaggerUIBundle({
  url: "/openapi.json",
  domNode: document.getElementById("swagger"),
  deepLinking: true,
  docExpansion: "list",
  // The native API first; the other surface is for existing clients.
  tagsSorter: (a, b) => a.startsWith("REST") - b.startsWith("REST") || a.localeCompare(b),
  displayRequestDuration: true,
  filter: true,
  validatorUrl: null,
});
