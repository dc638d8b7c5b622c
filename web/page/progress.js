/// A running job's iterations as a bar: { share, text }; null: nobody knows how many there are, or the program has not
/// reported one. A decoder has none, and a job of one iteration has no way to go.
export function iterationBar(j) {
  if (!(j.iterations > 1) || j.iteration === null) return null;
  // A training's workers take a while to start; a program that reports has started.
  if (j.iteration === 0 && j.command.length === 0) return { share: 0, text: `starting, ${j.iterations.toLocaleString("en-US")} iterations to do` };
  const share = Math.min(1, j.iteration / j.iterations);
  const grouped = (n) => n.toLocaleString("en-US");
  return { share, text: `iteration ${grouped(j.iteration)} of ${grouped(j.iterations)}` };
}
