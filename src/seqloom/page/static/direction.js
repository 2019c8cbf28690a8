// Which way a text runs. `dir="auto"` looks past children that have a direction of their own, so a row of tokens needs it.

const FIRST = /\p{L}/u;
const LEFTWARD = /[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}\p{Script=Samaritan}\p{Script=Mandaic}\p{Script=Adlam}]/u;

/** "rtl" if the first letter of the text belongs to a script that is written from right to left, else "ltr". */
export function directionOf(text) {
  return LEFTWARD.test(FIRST.exec(text)?.[0] ?? "") ? "rtl" : "ltr";
}
