// Answer
import { View, register } from "seqloom/view";

class Answer extends View {
  static view = "answer";
  static label = "Answer";
  static about = "";
}

register(Answer);
