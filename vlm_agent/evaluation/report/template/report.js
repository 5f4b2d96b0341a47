"use strict";
// Filters, and pictures that are loaded only near the visible area. Without scripts, every picture is loaded.
{
  const episodes = [...document.querySelectorAll(".episode")].map((article) => ({
    article,
    isFlip: article.closest("section").className === "flips",
    subset: article.dataset.subset,
    words: (article.querySelector("h4").textContent + " " + article.querySelector(".about").textContent).toLowerCase(),
    steps: [...article.querySelectorAll("figure")].map((figure) => ({
      figure,
      gold: figure.dataset.gold,
      right: figure.dataset.right.split(" "),
      wrong: figure.dataset.wrong.split(" "),
      unparsed: "unparsed" in figure.dataset,
    })),
  }));

  // In a browser that runs scripts, a noscript contains text: the picture's markup, in which all text is escaped.
  const draw = (article) => {
    for (const screen of article.querySelectorAll(".screen")) {
      if (screen.children.length > 1) continue;
      const picture = document.createElement("div");
      picture.className = "picture";
      picture.innerHTML = screen.firstElementChild.textContent;
      for (const image of picture.querySelectorAll("img")) image.loading = "eager";
      screen.append(picture);
    }
  };
  const clear = (article) => article.querySelectorAll(".picture").forEach((picture) => picture.remove());

  const watcher = new IntersectionObserver(
    (entries) => entries.forEach((entry) => (entry.isIntersecting ? draw : clear)(entry.target)),
    { rootMargin: "600px 0px" },
  );
  const watch = () => episodes.forEach(({ article }) => watcher.observe(article));
  watch();

  addEventListener("beforeprint", () => {
    watcher.disconnect();
    episodes.filter(({ article }) => !article.hidden).forEach(({ article }) => draw(article));
  });
  addEventListener("afterprint", watch);

  const field = (id) => document.getElementById(id);
  const fits = (step, gold, [verdict, scorer]) => {
    if (gold && step.gold !== gold) return false;
    if (verdict === "unparsed") return step.unparsed;
    return !verdict || step[verdict].includes(scorer);
  };
  const filter = () => {
    const [subset, gold] = [field("subset").value, field("gold").value];
    const verdict = field("verdict").value.split(" ");
    const goal = field("goal").value.trim().toLowerCase();
    const counts = { whole: [0, 0, 0], flips: [0, 0, 0] }; // articles, those shown, their steps shown
    for (const { article, isFlip, subset: its, words, steps } of episodes) {
      const matches = (!subset || its === subset) && words.includes(goal);
      let visible = 0;
      for (const step of steps) {
        const shown = matches && fits(step, gold, verdict);
        step.figure.hidden = !shown;
        visible += shown;
      }
      article.hidden = !visible;
      const count = isFlip ? counts.flips : counts.whole;
      count[0] += 1;
      count[1] += visible > 0;
      count[2] += visible;
    }
    const [all, shown, steps] = counts.whole;
    const [changed, shownChanged] = counts.flips;
    field("count").textContent = `${shown} of ${all} episodes with ${steps} steps` +
      (changed ? `, ${shownChanged} of ${changed} changed steps` : "");
  };
  field("filters").addEventListener("input", filter);
  field("filters").addEventListener("submit", (event) => event.preventDefault());
  document.querySelector(".scripted").hidden = false;
  filter();
}
