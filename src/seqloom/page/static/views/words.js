// Words
import { View, register } from "seqloom/view";

class Words extends View {
  static view = "words";
  static label = "Words";
  static about = "";
}

register(Words);
