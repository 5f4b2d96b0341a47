"use strict";
// Filters, and pictures that are loaded near the window only. Without scripts, every picture is loaded.
{
  const episodes = [...document.querySelectorAll(".episode")].map((article) => ({
    article,
    subset: article.dataset.subset,
    words: (article.querySelector("h4").textContent + " " + article.querySelector(".about").textContent).toLowerCase(),
    steps: [...article.querySelectorAll("figure")].map((figure) => ({
      figure,
      gold: figure.dataset.gold,
      right: figure.dataset.right.split(" "),
      unparsed: "unparsed" in figure.dataset,
    })),
  }));

  // To a browser that runs scripts, a noscript holds text: the markup of the picture, in which all words are escaped.
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
  const fits = (step, gold, [asked, scorer]) => {
    if (gold && step.gold !== gold) return false;
    if (asked === "unparsed") return step.unparsed;
    return !asked || step.right.includes(scorer) === (asked === "right");
  };
  const filter = () => {
    const [subset, gold] = [field("subset").value, field("gold").value];
    const verdict = field("verdict").value.split(" ");
    const goal = field("goal").value.trim().toLowerCase();
    let [articles, figures] = [0, 0];
    for (const { article, subset: its, words, steps } of episodes) {
      const asked = (!subset || its === subset) && words.includes(goal);
      let left = 0;
      for (const step of steps) {
        const shown = asked && fits(step, gold, verdict);
        step.figure.hidden = !shown;
        left += shown;
      }
      article.hidden = !left;
      articles += left > 0;
      figures += left;
    }
    field("count").textContent = `${articles} of ${episodes.length} shown, ${figures} steps`;
  };
  field("filters").addEventListener("input", filter);
  field("filters").addEventListener("submit", (event) => event.preventDefault());
  document.querySelector(".scripted").hidden = false;
  filter();
}
