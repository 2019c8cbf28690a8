// Runs
import { View, register } from "seqloom/view";

class Runs extends View {
  static view = "runs";
  static label = "Runs";
  static about = "";
  static needsTrace = false;
}

register(Runs);
