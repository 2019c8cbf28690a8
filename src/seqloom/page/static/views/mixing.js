// Mixing
import { View, register } from "seqloom/view";

class Mixing extends View {
  static view = "mixing";
  static label = "Mixing";
  static about = "";
}

register(Mixing);
