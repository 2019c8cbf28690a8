// Change
import { View, register } from "seqloom/view";

class Change extends View {
  static view = "change";
  static label = "Change";
  static about = "";
}

register(Change);
