// Why
import { View, register } from "seqloom/view";

class Why extends View {
  static view = "why";
  static label = "Why";
  static about = "";
}

register(Why);
