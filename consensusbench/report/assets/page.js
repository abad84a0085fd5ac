// Behaviour of the report. The page reads well without it: scripts only choose what is shown.
// Text of rollouts is never turned into markup here; it is read, compared and left where it is.
"use strict";

document.documentElement.classList.add("js");
const find = (selector, root = document) => root.querySelector(selector);
const findAll = (selector, root = document) => [...root.querySelectorAll(selector)];

// One scope (all models, or one) of the charts at a time.
const scope = find("#scope");
if (scope) {
  const show = () => {
    for (const part of findAll("[data-scope]")) part.hidden = part.dataset.scope !== scope.value;
  };
  scope.addEventListener("change", show);
  show();
}

// What a mark of a chart stands for.
const tip = find("#tip");
const place = (x, y) => {
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - box.width - 4))}px`;
  tip.style.top = `${y + 18 + box.height > innerHeight ? y - box.height - 8 : y + 18}px`;
};
document.addEventListener("pointermove", (event) => {
  const mark = event.target instanceof Element ? event.target.closest("[data-tip]") : null;
  tip.hidden = mark === null;
  if (mark === null) return;
  tip.textContent = mark.dataset.tip;
  place(event.clientX, event.clientY);
});

// Tables sort by the button of a column; a row without a value stays last either way.
const compare = (a, b, down) => {
  if (a === "" || b === "") return (a === "") - (b === "");
  const numbers = a !== "" && b !== "" && !isNaN(a) && !isNaN(b);
  const order = numbers ? Number(a) - Number(b) : a.localeCompare(b);
  return down ? -order : order;
};
for (const table of findAll("table.sortable")) {
  const heads = findAll("thead th", table);
  heads.forEach((head, at) => {
    find("button", head).addEventListener("click", () => {
      const first = head.classList.contains("text") ? "ascending" : "descending";
      const other = first === "ascending" ? "descending" : "ascending";
      const order = head.getAttribute("aria-sort") === first ? other : first;
      heads.forEach((each) => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", order);
      const body = table.tBodies[0];
      const rows = [...body.rows].map((row) => [row.cells[at].dataset.sort ?? "", row]);
      rows.sort(([a], [b]) => compare(a, b, order === "descending"));
      body.append(...rows.map(([, row]) => row));
    });
  });
}

// The browser of rollouts.
const filters = find("#filters");
if (filters) {
  const rollouts = findAll("details.rollout");
  const shown = find("#shown");
  const texts = new Map();
  const textOf = (rollout) => {
    if (!texts.has(rollout)) texts.set(rollout, rollout.textContent.toLowerCase());
    return texts.get(rollout);
  };
  const chosen = (name) => find(`[name=${name}]`, filters).value;
  const apply = () => {
    const exact = ["model", "source", "side", "kind"].map((name) => [name, chosen(name)]);
    const [from, to] = [chosen("from"), chosen("to")];
    const words = chosen("words").trim().toLowerCase();
    let count = 0;
    for (const rollout of rollouts) {
      const data = rollout.dataset;
      const ncr = data.ncr === "" ? null : 100 * Number(data.ncr);
      const fits =
        exact.every(([name, value]) => value === "" || data[name] === value.slice(1)) &&
        (from === "" || (ncr !== null && ncr >= Number(from) - 1e-6)) &&
        (to === "" || (ncr !== null && ncr <= Number(to) + 1e-6)) &&
        (words === "" || textOf(rollout).includes(words));
      rollout.hidden = !fits;
      count += fits;
    }
    shown.textContent = `${count} of ${rollouts.length} rollouts shown`;
  };
  filters.addEventListener("input", apply);
  filters.addEventListener("submit", (event) => event.preventDefault());
  filters.addEventListener("reset", () => setTimeout(apply));
  find("#unfold").addEventListener("click", () => {
    const visible = rollouts.filter((rollout) => !rollout.hidden);
    const open = visible.some((rollout) => !rollout.open);
    for (const rollout of visible) rollout.open = open;
  });

  // A link to a rollout opens it, whatever the filters say.
  const follow = () => {
    const target = document.getElementById(location.hash.slice(1));
    if (!target?.matches("details.rollout")) return;
    if (target.hidden) {
      filters.reset();
      for (const rollout of rollouts) rollout.hidden = false;
    }
    target.open = true;
    target.scrollIntoView({ behavior: "instant" });
  };
  addEventListener("hashchange", follow);
  apply();
  follow();
}
