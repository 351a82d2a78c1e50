// Runs before the first paint, so that a chosen theme does not flash up in the other one.
"use strict";

{
  try {
    const chosen = localStorage.getItem("sluice-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // A browser that keeps nothing for pages: then it is the system's theme.
  }
}
