"use strict";
(() => {
  const form = document.querySelector(".filter");
  const rows = [...document.querySelectorAll(".requirement")];
  if (form && rows.length) {
    const words = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
    const search = form.querySelector("input[type=search]");
    const boxes = [...form.querySelectorAll("input[name=outcome]")];
    const apply = () => {
      const wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      const outcomes = boxes.filter((box) => box.checked).map((box) => box.value);
      const { group, level } = form.elements;
      let shown = 0;
      for (const row of rows) {
        const visible =
          (!outcomes.length || outcomes.includes(row.dataset.outcome)) &&
          (!group.value || row.dataset.group === group.value) &&
          (!level.value || row.dataset.level === level.value) &&
          wanted.every((word) => words.get(row).includes(word));
        row.hidden = !visible;
        shown += visible;
      }
      form.querySelector("output").value = `${shown} of ${rows.length}`;
      document.querySelector(".empty").hidden = shown > 0;
    };
    form.hidden = false;
    form.addEventListener("input", apply);
    form.addEventListener("submit", (event) => event.preventDefault());
    for (const link of document.querySelectorAll("a[data-outcome], a[data-group]")) {
      link.addEventListener("click", () => {
        for (const box of boxes) box.checked = box.value === link.dataset.outcome;
        form.elements.group.value = link.dataset.group || "";
        apply();
      });
    }
    apply();
  }
  const open = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target instanceof HTMLDetailsElement) {
      target.hidden = false;
      target.open = true;
      target.scrollIntoView();
    }
  };
  addEventListener("hashchange", open);
  open();
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = rows.filter((row) => !row.open && row.dataset.outcome !== "passed");
    for (const row of closed) row.open = true;
  });
  addEventListener("afterprint", () => { for (const row of closed) row.open = false; });
  for (const button of document.querySelectorAll(".copy")) {
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(button.previousElementSibling.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(button.previousElementSibling);
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }
})();
